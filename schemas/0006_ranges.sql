-- 0006: rows that wait for their topic are parked together: one record for those of a batch, however long the topic is in trouble.

-- A parked range: rows of one batch that wait for the same row of their topic, have never been tried and have nothing to tell besides. Its
-- rows are in no other table until they are claimed again; then, in the claim's transaction, the range (the lower ids of it; the rest
-- becomes a range of its own) is marked with the batch that took them, and that batch's settlement deletes it.
create table :"schema".parked_range (
    id           bigint generated always as identity primary key,
    relay        text not null,
    topic        text not null,
    waits_for_id bigint not null,
    ids          bigint[] not null check (cardinality(ids) > 0), -- ascending
    row_count    int not null generated always as (cardinality(ids)) stored,
    min_id       bigint not null generated always as (ids[1]) stored,
    max_id       bigint not null generated always as (ids[cardinality(ids)]) stored,
    taken_by     bigint, -- the open batch of parked rows that has them; null: they wait
    claimed_at   timestamptz,
    parked_at    timestamptz not null default clock_timestamp()
);
create index parked_range_waiting on :"schema".parked_range (waits_for_id, min_id);
create index parked_range_taken on :"schema".parked_range (relay, taken_by) where taken_by is not null;
-- Which range holds a message?
create index parked_range_ids on :"schema".parked_range using gist (int8range(min_id, max_id, '[]'));

-- Compressed with lz4 as the receipts are; servers before 14, or built without it, keep pglz.
select set_config('denpyo.schema', :'schema', false);
do $$
begin
    if current_setting('server_version_num')::int >= 140000 then
        execute format('alter table %I.parked_range alter ids set compression lz4', current_setting('denpyo.schema'));
    end if;
exception
    when feature_not_supported then
        null;
end
$$;
reset denpyo.schema;

-- Where every message is. Each branch carries its state as a literal (parked: a column), so that a condition on
-- state reads only the branches that can hold it. attempts is null where it is not kept (dispatched); partition is the
-- broker's for dispatched rows, else the one that was asked for; a binary key is shown as \x and hex digits; held_by says whether a held
-- row waits for one of its key or, when the whole topic is in trouble, of its topic.
create or replace view :"schema".status as
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
       case when p.state <> 'held' then null when p.scope = 'key' and m.key is null and m.key_bytes is null then 'topic' else p.scope end
  from :"schema".parked p
  left join :"schema".message m on m.id = p.id
  left join (select o.claimed_at, unnest(o.parked_ids) as id from :"schema".open_batch o) retry on retry.id = p.id
union all
-- The condition on the range's bounds leads from a message to its range, the one on its ids from a range to its messages.
select m.id, m.message_id, m.topic, coalesce(m.key, '\x' || encode(m.key_bytes, 'hex')),
       case when d.taken_by is null then 'held' else 'requesting' end,
       0, null, null, m.partition, null, m.created_at,
       coalesce((select b.claimed_at from :"schema".batch b where b.relay = d.relay and b.id = d.taken_by), d.claimed_at),
       null, null, d.waits_for_id, null, null, 'topic'
  from :"schema".parked_range d
  cross join lateral unnest(d.ids) as r (id)
  join :"schema".message m on m.id = r.id and int8range(d.min_id, d.max_id, '[]') @> m.id
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
create or replace view :"schema".lag as
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
    select d.topic, case when d.taken_by is null then 'held' else 'requesting' end, sum(d.row_count), null
      from :"schema".parked_range d
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

revoke all on :"schema".parked_range from public;

insert into :"schema".denpyo_migration (version, name) values (6, '0006_ranges');
