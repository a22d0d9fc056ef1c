-- Overdue rows have no time, because the process that sent them waits for their reports; it is no more. They are due,
-- but for those that this process knows to wait until their partition has a leader. What waits for one
-- of a partition waits for the lowest of them from now on: they were parked in no order, and only one can stand for the partition.
-- $1 relay, $2 bigint[] ids that wait for a leader
with lowest as materialized (
    select p.topic, p.partition, min(p.id) as id from :"schema".parked p
    where p.relay = $1::text and p.state = 'requesting' and p.scope = 'partition'
    group by p.topic, p.partition
), moved as (
    update :"schema".parked p set waits_for_id = lowest.id
    from lowest
    where p.relay = $1::text and p.state = 'held' and p.scope = 'partition' and p.topic = lowest.topic and p.partition = lowest.partition
      and p.waits_for_id <> lowest.id
)
update :"schema".parked set next_attempt_at = clock_timestamp()
where relay = $1::text and state = 'requesting' and next_attempt_at is null
  and not exists (select from unnest($2::bigint[]) waiting where waiting = parked.id)
