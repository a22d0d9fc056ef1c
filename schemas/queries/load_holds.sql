-- Who holds whom: one row a blocker and scope with the number of rows that wait there and are not in an open batch, lowest
-- blocker first. A row can be waited for in both scopes: it failed for its own sake, then for its topic's.
-- $1 relay, $2 newest settlement, $3 whether a rejected row holds its followers, too
with taken as materialized (
    select unnest(b.parked_ids) as id from :"schema".batch b
    where b.relay = $1::text and b.id > $2::bigint and b.parked_ids is not null
), involved as (
    select p.id as blocker, p.scope, p.partition, p.id as example, p.topic, 0 as waits
    from :"schema".parked p
    where p.relay = $1::text and (p.state in ('failed', 'requesting') or p.state = 'rejected' and $3::boolean)
    union all
    select p.waits_for_id, p.scope, p.partition, p.id, p.topic, (taken.id is null)::int
    from :"schema".parked p left join taken on taken.id = p.id
    where p.relay = $1::text and p.state = 'held'
    union all
    select d.waits_for_id, 'topic', null, d.max_id, d.topic, case when d.taken_by is null then d.row_count else 0 end
    from :"schema".parked_range d
    where d.relay = $1::text
), holds as (
    select blocker, scope, min(partition) as partition, max(example) as example, min(topic) as topic, sum(waits) as waiters
    from involved group by blocker, scope
)
-- A blocker may be held itself, in the other scope. One that a person skipped blocks until its followers are told: else rows of the open batch
-- that took it would pass those. One that waits for itself came back after a crash had undone its trouble, when others waited for it
-- already: all of them are being released. One whose message was removed will never be resolved: it blocks nobody. One that has failed
-- does not stand for its partition any more.
select holds.blocker, holds.scope,
       present.id is not null and not (holds.scope = 'partition' and blocker.state in ('failed', 'rejected')) as blocked,
       holds.waiters, holds.topic, m.key, m.key_bytes, holds.partition
from holds
left join :"schema".parked blocker on blocker.id = holds.blocker
     and (blocker.state in ('failed', 'requesting')
          or blocker.state = 'held' and (blocker.waits_for_id, blocker.scope) <> (holds.blocker, holds.scope)
          or blocker.state = 'rejected' and $3::boolean
          or blocker.state = 'skipped' and blocker.next_attempt_at is not null)
left join :"schema".message present on present.id = blocker.id
left join :"schema".message m on m.id = holds.example
order by 1
