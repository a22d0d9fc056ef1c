-- Who leads? $1 relay
select epoch, holder is null or lease_expires_at < clock_timestamp() as is_free,
       coalesce(holder_info, ''), extract(epoch from lease_expires_at - clock_timestamp())::text
from :"schema".relay
where name = $1::text
