-- Where we stand: the newest batch (the cursor), the newest settlement, whether this server is in recovery, and the floor of all windows.
-- $1 relay
select b.id, b.window_from::text, b.window_to::text, b.upto_id, b.last_page,
       coalesce((select max(s.id) from :"schema".settlement s where s.relay = $1::text), 0),
       pg_is_in_recovery(),
       coalesce((select r.floor_id from :"schema".relay r where r.name = $1::text), 0)
from (select 1) one
left join lateral (select * from :"schema".batch where relay = $1::text order by id desc limit 1) b on true
