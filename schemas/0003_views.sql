-- 0003: what people ask: where is this message, what waits, what is in trouble, what went out.
--
-- A row is settled, parked, claimed (in a page of an open batch) or unclaimed (beyond the cursor). Each of these is found
-- from its own small end, so that no question costs what the settled rows cost, however many there are.

-- The cursor: the newest batch; one row always. Before the first batch everything is beyond it. fresh_id is, roughly, the lowest
-- id of the transactions that began after the cursor's window (after the window's start, while it is not finished).
create view :"schema".progress as
select c.*,
       (select m.id from :"schema".message m
         where m.xid >= pg_snapshot_xmax(case when c.last_page then c.window_to else c.window_from end)
         order by m.xid, m.id limit 1) as fresh_id
  from (select b.relay, b.id as batch_id, coalesce(b.window_from, '1:1:') as window_from,
               coalesce(b.window_to, '1:1:') as window_to, coalesce(b.last_page, true) as last_page,
               coalesce(b.upto_id, 0) as upto_id, coalesce(b.floor_id, 0) as floor_id
          from (select) as always
          left join lateral (
               select newest.*, r.floor_id
                 from :"schema".relay r
                 cross join lateral (select * from :"schema".batch b
                                      where b.relay = r.name order by b.id desc limit 1) newest
                order by r.acquired_at desc nulls last
                limit 1) b on true) c;

-- Rows that no batch has claimed: not visible in window_to, or above the last page of a window that is not finished.
-- The last condition says so exactly and is all that counts (a CASE: no index is to be tried for its parts). The one before
-- it, three ranges of which each is a superset of its part, is for the planner: it takes a pair of bounds that it cannot
-- know for half a percent of the table, and therefore uses the indexes, whatever the statistics. In an unfinished window
-- the rows above its last page come by id once that page has reached what is fresh; before that they lie
-- behind old rows with higher ids and come by xid.
create view :"schema".unclaimed as
with c as materialized (
    select p.*,
           array(select pg_snapshot_xip(p.window_to)
                 union all
                 select pg_snapshot_xip(p.window_from) where not p.last_page) as xids,
           pg_snapshot_xmin(p.window_from) as xids_from,
           pg_snapshot_xmax(p.window_to) as xids_to,
           pg_snapshot_xmax(case when p.last_page or p.fresh_id <= p.upto_id
                                 then p.window_to else p.window_from end) as from_xid,
           case when not p.last_page and p.fresh_id <= p.upto_id then p.upto_id end as above_id
      from :"schema".progress p
)
select m.*
  from c
  cross join :"schema".message m
 where (m.xid = any ((select c.xids from c)::xid8[])
           and m.xid >= (select c.xids_from from c) and m.xid < (select c.xids_to from c)
        or m.xid >= (select c.from_xid from c) and m.xid <= '18446744073709551615'
        or m.id > (select c.above_id from c) and m.id <= 9223372036854775807)
   and case when m.id <= c.floor_id then false
            when not pg_visible_in_snapshot(m.xid, c.window_to) then true
            else not c.last_page and m.id > c.upto_id and not pg_visible_in_snapshot(m.xid, c.window_from) end;

-- Claimed and not closed. The order keeps the look-up, from the newest settlement on, from being turned into a join that reads
-- all batches.
create view :"schema".open_batch as
select b.*, r.floor_id
  from :"schema".relay r
  cross join lateral (
       select * from :"schema".batch b
        where b.relay = r.name
          and b.id > coalesce((select s.id from :"schema".settlement s
                                where s.relay = r.name order by s.id desc limit 1), -1)
        order by b.id) b;

-- Rows in pages of open batches, unless parked: they may be on the wire. The shape is that of unclaimed: the join with
-- the batch is exact; the ranges before it are by id where the open pages are dense, else (a page that begins
-- with a late commit spans all rows since) by xid.
create view :"schema".claimed as
with o as materialized (
    select * from :"schema".open_batch where parked_ids is null
), c as materialized (
    select min(after_id) as after_id, max(upto_id) as upto_id,
           max(upto_id) - min(after_id) <= 4 * sum(row_count) + 1000 as is_dense,
           (array_agg(pg_snapshot_xmax(window_from) order by id))[1] as from_xid,
           (array_agg(pg_snapshot_xmax(window_to) order by id desc))[1] as to_xid,
           array(select pg_snapshot_xip(window_from) from o) as xids
      from o
)
select m.*, o.claimed_at
  from :"schema".message m
  join o on case when m.id <= greatest(o.after_id, o.floor_id) or m.id > o.upto_id then false
                 else pg_visible_in_snapshot(m.xid, o.window_to) and not pg_visible_in_snapshot(m.xid, o.window_from) end
 where (m.id > (select c.after_id from c where c.is_dense) and m.id <= (select c.upto_id from c where c.is_dense)
        or m.xid = any ((select c.xids from c where not c.is_dense)::xid8[])
           and m.id > (select c.after_id from c) and m.id <= (select c.upto_id from c)
        or m.xid >= (select c.from_xid from c where not c.is_dense)
           and m.xid < (select c.to_xid from c where not c.is_dense)
           and m.id > (select c.after_id from c) and m.id <= (select c.upto_id from c))
   and not exists (select from :"schema".parked p where p.id = m.id);

-- Where every message is. Each branch carries its state as a literal (parked: a column), so that a condition on
-- state reads only the branches that can hold it. attempts is null where it is not kept (dispatched); partition is the
-- broker's for dispatched rows, else the one that was asked for; a binary key is shown as \x and hex digits; held_by says whether a held
-- row waits for one of its key or, when the whole topic is in trouble, of its topic.
create view :"schema".status as
select m.id, m.message_id, m.topic, coalesce(m.key, '\x' || encode(m.key_bytes, 'hex')) as key, 'pending' as state,
       0 as attempts, null::text as error_code, null::text as error, m.partition, null::bigint as "offset", m.created_at,
       null::timestamptz as requested_at, null::timestamptz as settled_at, null::timestamptz as next_attempt_at,
       null::bigint as waits_for_id, null::timestamptz as first_error_at, null::timestamptz as last_error_at,
       null::text as held_by
  from :"schema".unclaimed m
 where m.available_at is null or m.available_at <= now()
union all
select m.id, m.message_id, m.topic, coalesce(m.key, '\x' || encode(m.key_bytes, 'hex')), 'delayed',
       0, null, null, m.partition, null, m.created_at, null, null, m.available_at, null, null, null, null
  from :"schema".unclaimed m
 where m.available_at > now()
union all
select m.id, m.message_id, m.topic, coalesce(m.key, '\x' || encode(m.key_bytes, 'hex')), 'requesting',
       0, null, null, m.partition, null, m.created_at, m.claimed_at, null, null, null, null, null, null
  from :"schema".claimed m
union all
select p.id, p.message_id, p.topic, coalesce(m.key, '\x' || encode(m.key_bytes, 'hex')),
       case when retry.id is null or p.state = 'skipped' then p.state else 'requesting' end,
       p.attempts, p.error_code, p.error, m.partition, null, m.created_at,
       coalesce(retry.claimed_at, p.claimed_at), null, p.next_attempt_at, p.waits_for_id, p.first_error_at, p.last_error_at,
       case when p.state <> 'held' then null when m.key is null and m.key_bytes is null then 'topic' else p.scope end
  from :"schema".parked p
  left join :"schema".message m on m.id = p.id
  left join (select o.claimed_at, unnest(o.parked_ids) as id from :"schema".open_batch o) retry on retry.id = p.id
union all
select m.id, m.message_id, m.topic, coalesce(m.key, '\x' || encode(m.key_bytes, 'hex')), 'dispatched',
       null, null, null, r.partition, r."offset", m.created_at, b.claimed_at, s.settled_at, null, null, null, null, null
  from :"schema".message m
  join :"schema".settlement s on s.min_id is not null and int8range(s.min_id, s.max_id, '[]') @> m.id
  cross join lateral unnest(s.ids, s.partitions, s.offsets) as r (id, partition, "offset")
  left join :"schema".batch b on b.relay = s.relay and b.id = s.id
 where r.id = m.id;

-- Per topic, what is not settled, counted; and when something was last dispatched. Shows topics with anything
-- unsettled or ever dispatched. For a huge backlog see backlog, an estimate at the cost of a look-up. Whoever asks often
-- spares the server work with "set jit = off": what the planner expects of a large table is worth compiling, what is found is not.
create view :"schema".lag as
with recursive dispatched (topic) as (
    (select topic from :"schema".settlement_topic order by topic limit 1)
    union all
    select (select t.topic from :"schema".settlement_topic t where t.topic > d.topic order by t.topic limit 1)
      from dispatched d
     where d.topic is not null
), waiting (topic, state, count, oldest_at) as (
    select topic, case when available_at > now() then 'delayed' else 'pending' end, count(*), min(created_at)
      from :"schema".unclaimed
     group by 1, 2
    union all
    select topic, 'requesting', count(*), null from :"schema".claimed group by 1
    union all
    select p.topic, case when retry.id is null or p.state = 'skipped' then p.state else 'requesting' end, count(*), null
      from :"schema".parked p
      left join (select unnest(o.parked_ids) as id from :"schema".open_batch o) retry on retry.id = p.id
     group by 1, 2
    union all
    select topic, null, 0, null from dispatched where topic is not null
)
select w.topic,
       coalesce(sum(w.count) filter (where w.state = 'pending'), 0)::bigint as pending,
       coalesce(sum(w.count) filter (where w.state = 'delayed'), 0)::bigint as delayed,
       coalesce(sum(w.count) filter (where w.state = 'held'), 0)::bigint as held,
       coalesce(sum(w.count) filter (where w.state = 'requesting'), 0)::bigint as requesting,
       coalesce(sum(w.count) filter (where w.state = 'failed'), 0)::bigint as failed,
       coalesce(sum(w.count) filter (where w.state = 'rejected'), 0)::bigint as rejected,
       min(w.oldest_at) filter (where w.state = 'pending') as oldest_pending_at,
       date_part('epoch', clock_timestamp() - min(w.oldest_at) filter (where w.state = 'pending')) as oldest_pending_seconds,
       (select t.settled_at from :"schema".settlement_topic t
         where t.topic = w.topic order by t.settled_at desc limit 1) as last_dispatched_at
  from waiting w
 group by w.topic
having count(w.state) filter (where w.state <> 'skipped') > 0 or bool_or(w.state is null);

-- About how many rows wait to be claimed, all topics together, from ids alone: too high by ids that were rolled back, too
-- low by late commits with low ids.
create view :"schema".backlog as
select case when p.last_page and p.fresh_id is null then 0
            else greatest(0, n.newest_id - greatest(p.fresh_id - 1, case when not p.last_page then p.upto_id end))
       end as pending_estimate,
       n.newest_id, p.relay, p.batch_id
  from :"schema".progress p
  cross join (select (select m.id from :"schema".message m order by m.id desc limit 1) as newest_id) n;

-- What a person should look at: on the wire for over a minute, failing for over five minutes, and prepared transactions
-- older than five minutes (what they inserted stays unseen, and their locks stay, until they are ended).
create view :"schema".stuck as
select s.state as problem, s.id, s.message_id, s.topic, s.requested_at as since, now() - s.requested_at as age,
       coalesce(s.error, 'claimed and not acknowledged: is the relay running, is the broker reachable?') as detail
  from :"schema".status s
 where s.state = 'requesting' and s.requested_at < now() - interval '1 minute'
union all
select s.state, s.id, s.message_id, s.topic, s.first_error_at, now() - s.first_error_at,
       concat_ws(': ', s.error_code, s.error)
  from :"schema".status s
 where s.state = 'failed' and s.first_error_at < now() - interval '5 minutes'
union all
select 'prepared transaction', null, null, null, p.prepared, now() - p.prepared,
       format('%L of %s: commit prepared or roll back', p.gid, p.owner)
  from pg_prepared_xacts p
 where p.database = current_database() and p.prepared < now() - interval '5 minutes';

-- One row per dispatched message, from the ledger alone: it answers also when the message was pruned. It opens every
-- settlement; to look up one message, see receipt_of() or status.
create view :"schema".receipt as
select r.message_id, r.id, s.topic_names[r.topic] as topic, r.partition, r."offset", s.settled_at,
       s.relay, s.id as batch_id
  from :"schema".settlement s
  cross join lateral unnest(s.ids, s.message_ids, s.topics, s.partitions, s.offsets)
             as r (id, message_id, topic, partition, "offset");

-- The receipt of one message by its id, found by range; pruned or not.
create function :"schema".receipt_of(id bigint) returns setof :"schema".receipt
language sql stable security definer set search_path = :"schema", pg_temp as $$
    select r.message_id, r.id, s.topic_names[r.topic], r.partition, r."offset", s.settled_at, s.relay, s.id
      from settlement s
      cross join lateral unnest(s.ids, s.message_ids, s.topics, s.partitions, s.offsets)
                 as r (id, message_id, topic, partition, "offset")
     where s.min_id is not null and int8range(s.min_id, s.max_id, '[]') @> receipt_of.id and r.id = receipt_of.id
$$;

-- The same by message id: through the message while it is there; after it was pruned every settlement is searched.
create function :"schema".receipt_of(message_id uuid) returns setof :"schema".receipt
language sql stable security definer set search_path = :"schema", pg_temp as $$
    select r.*
      from message m cross join lateral receipt_of(m.id) r
     where m.message_id = receipt_of.message_id
    union all
    select r.message_id, r.id, s.topic_names[r.topic], r.partition, r."offset", s.settled_at, s.relay, s.id
      from settlement s
      cross join lateral unnest(s.ids, s.message_ids, s.topics, s.partitions, s.offsets)
                 as r (id, message_id, topic, partition, "offset")
     where receipt_of.message_id = any (s.message_ids) and r.message_id = receipt_of.message_id
       and (select m.id from message m where m.message_id = receipt_of.message_id) is null
$$;

-- The audit: how many of each topic were dispatched in each month (UTC).
create view :"schema".dispatched_by_month as
select date_trunc('month', t.settled_at at time zone 'UTC')::date as month, t.topic, sum(t.count)::bigint as dispatched
  from :"schema".settlement_topic t
 group by 1, 2;

-- Who leads, for people who may not read the relay's own tables.
create view :"schema".leader as
select name, holder_info, epoch, lease_expires_at, lease_expires_at > clock_timestamp() as has_lease, heartbeat_at,
       acquired_at, version, cluster_id
  from :"schema".relay;

revoke all on all tables in schema :"schema" from public;
revoke all on all functions in schema :"schema" from public;

insert into :"schema".denpyo_migration (version, name) values (3, '0003_views');
