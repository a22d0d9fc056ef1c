-- Who leads? Free is a lease that was given back, has expired, or is ours by a takeover whose answer never came.
-- $1 relay, $2 holder that asks
select epoch, holder is null or holder = $2::uuid or lease_expires_at < clock_timestamp() as is_free, coalesce(holder_info, '')
from :"schema".relay
where name = $1::text
