-- Who holds whom: one row a blocker and scope with the number of rows that wait there and are not in an open batch, lowest
-- blocker first. A row can be waited for in both scopes: it failed for its own sake, then for its topic's.
-- $1 relay, $2 newest settlement, $3 whether a rejected row holds its followers, too
with taken as materialized (
    select unnest(b.parked_ids) as id from :"schema".batch b
    where b.relay = $1::text and b.id > $2::bigint and b.parked_ids is not null
), involved as (
    select p.id as blocker, p.scope, p.id as example, 0 as waits
    from :"schema".parked p
    where p.relay = $1::text and (p.state in ('failed', 'requesting') or p.state = 'rejected' and $3::boolean)
    union all
    select p.waits_for_id, p.scope, p.id, (taken.id is null)::int
    from :"schema".parked p left join taken on taken.id = p.id
    where p.relay = $1::text and p.state = 'held'
), holds as (
    select blocker, scope, min(example) as example, sum(waits) as waiters from involved group by blocker, scope
)
-- A blocker may be held itself, in the other scope.
select holds.blocker, holds.scope, blocker.id is not null as blocked, holds.waiters, m.topic, m.key, m.key_bytes
from holds
left join :"schema".parked blocker on blocker.id = holds.blocker
     and (blocker.state in ('failed', 'requesting', 'held') or blocker.state = 'rejected' and $3::boolean)
join :"schema".message m on m.id = holds.example
order by 1
