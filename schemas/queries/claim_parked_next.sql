-- Milliseconds until the next parked row is due (negative: since), null when there is none within a century
-- ('infinity' has no distance).
-- $1 relay
select (extract(epoch from min(p.next_attempt_at) - clock_timestamp()) * 1000)::bigint
from :"schema".parked p
where p.relay = $1::text and p.state in ('failed', 'delayed', 'requesting', 'skipped')
  and p.next_attempt_at < clock_timestamp() + interval '100 years'
