-- Another row of the key (or topic) is in trouble now: who waited for $1 waits for $2, and $1 itself too if it still is failed.
-- One row: how many turned from failed to held.
with moved as (
    update :"schema".parked
    set waits_for_id = $2::bigint, state = 'held', next_attempt_at = null
    where (state = 'held' and waits_for_id = $1::bigint) or (id = $1::bigint and state = 'failed')
    returning id
)
select count(*) filter (where id = $1::bigint) from moved
