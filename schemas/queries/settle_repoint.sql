-- Another row of the key (or topic) is in trouble now: who waited for $1 waits for $2, and $1 itself too if it still is failed
-- (or rejected, where that holds followers) and in no batch that is still open. One row: how many turned from failed to held.
-- $1 id waited for, $2 id to wait for, $3 scope, $4 relay, $5 batch that is being settled, $6 whether a rejected row holds its followers
with moved as (
    update :"schema".parked
    set waits_for_id = $2::bigint, state = 'held', scope = $3::text, next_attempt_at = null
    where (state = 'held' and waits_for_id = $1::bigint and scope = $3::text)
       or (id = $1::bigint and (state = 'failed' or state = 'rejected' and $6::boolean)
           and not exists (select 1 from :"schema".batch b
                           where b.relay = $4::text and b.id > $5::bigint and $1::bigint = any (b.parked_ids)))
    returning id
), moved_ranges as (
    update :"schema".parked_range set waits_for_id = $2::bigint where waits_for_id = $1::bigint and $3::text = 'topic'
)
select count(*) filter (where id = $1::bigint) from moved
