-- The outbox has come to another cluster, where the transaction ids of its windows mean nothing. While nobody can insert: the highest id becomes the
-- floor that every window stays above, what was on its way is parked, open batches are closed, and a cursor before all transactions
-- is set up as a batch of no rows. One row: the floor, how many batches were open, how many messages were on their way.
-- $1 relay, $2 epoch, $3 what to say of messages that were on their way
with floor as materialized (
    select :"schema".quiesce() as id
), newest as materialized (
    select coalesce(max(b.id), 0) as id from :"schema".batch b where b.relay = $1::text
), open as materialized (
    select b.* from :"schema".batch b
    where b.relay = $1::text and b.id > coalesce((select max(s.id) from :"schema".settlement s where s.relay = $1::text), 0)
), sent as (
    -- The windows are those of the cluster before, and so are the transaction ids of these rows.
    insert into :"schema".parked (id, relay, message_id, topic, state, next_attempt_at, error_code, error, first_error_at, last_error_at, claimed_at)
    select m.id, $1::text, m.message_id, m.topic, 'requesting', now(), 'SWEPT', $3::text, now(), now(), o.claimed_at
    from open o
    join :"schema".message m on m.id > o.after_id and m.id <= o.upto_id
    where o.parked_ids is null and pg_visible_in_snapshot(m.xid, o.window_to) and not pg_visible_in_snapshot(m.xid, o.window_from)
    on conflict do nothing
    returning id
), back as (
    -- Ranges whose rows were on their way once more wait again.
    update :"schema".parked_range set taken_by = null where relay = $1::text and taken_by is not null
), cursor as (
    insert into :"schema".batch (relay, id, epoch, window_from, window_to, after_id, upto_id, row_count, last_page, topic_names, partition_counts)
    select $1::text, newest.id + 1, $2::bigint, '1:1:', '1:1:', floor.id, floor.id, 0, true, '{}', '{}' from newest, floor
    returning id
), closed as (
    insert into :"schema".settlement (relay, id, topic_names, ids, message_ids, topics, partitions, offsets)
    select $1::text, b.id, '{}', '{}', '{}', '{}', '{}', '{}' from (select id from open union all select id from cursor) b
), raised as (
    update :"schema".relay r set floor_id = floor.id from floor where r.name = $1::text
)
select floor.id, (select count(*) from open), (select count(*) from sent) from floor
