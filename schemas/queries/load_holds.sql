-- Who holds whom: one row a blocker with the number of rows that wait for it and are not in an open batch, lowest id first.
-- $1 relay, $2 newest settlement
with taken as materialized (
    select unnest(b.parked_ids) as id from :"schema".batch b
    where b.relay = $1::text and b.id > $2::bigint and b.parked_ids is not null
), waiting as (
    select p.waits_for_id as blocker, min(p.scope) as scope, min(p.id) as first_id,
           count(*) filter (where not exists (select 1 from taken where taken.id = p.id)) as waiters
    from :"schema".parked p
    where p.relay = $1::text and p.state = 'held'
    group by p.waits_for_id
), failing as (
    select p.id, p.scope from :"schema".parked p where p.relay = $1::text and p.state in ('failed', 'requesting')
)
select coalesce(failing.id, waiting.blocker) as blocker,
       coalesce(failing.scope, waiting.scope) as scope,
       failing.id is not null as blocked,
       coalesce(waiting.waiters, 0) as waiters,
       m.topic, m.key, m.key_bytes
from failing
full join waiting on waiting.blocker = failing.id
join :"schema".message m on m.id = coalesce(failing.id, waiting.first_id)
order by 1
