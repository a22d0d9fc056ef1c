-- 0011: what is for later and not claimed yet, at once, however much waits.
--
-- An index of the rows that have a time to wait for; other rows do not enter it. Building it reads the table once (0.1 seconds for
-- each million rows in memory), and inserts wait meanwhile. Where that is too long, make it beforehand, which keeps nobody waiting:
-- create index concurrently message_later on outbox.message (xid, id) where available_at is not null
-- Behind a lock that is waited for, inserts queue, so it gives up soon: then run "denpyo init" again when no long transaction writes.
select set_config('lock_timeout', '2s', true);
create index if not exists message_later on :"schema".message (xid, id) where available_at is not null;
-- One that was made beforehand and did not come to its end is there, but serves nobody.
select set_config('denpyo.schema', :'schema', false);
do $$
begin
    if exists (select from pg_index i where i.indexrelid = format('%I.message_later', current_setting('denpyo.schema'))::regclass
                                        and not (i.indisvalid and i.indisready)) then
        raise exception 'index %.message_later is not valid, making it beforehand did not come to its end: drop index %.message_later, then run "denpyo init" again',
            quote_ident(current_setting('denpyo.schema')), quote_ident(current_setting('denpyo.schema'));
    end if;
end
$$;
reset denpyo.schema;

-- Rows that no batch has claimed and that are for later. As in unclaimed, the last condition of each part (the CASE) says so exactly, and
-- what stands before it are three ranges that share no row: of transactions that ran when the window began or ended, of those that came
-- after it, and of its own, above its last page, if it is not finished. All are found in the index of what is for later.
create view :"schema".unclaimed_later as
with c as materialized (
    select p.*,
           array(select pg_snapshot_xip(p.window_to)
                 union all
                 select pg_snapshot_xip(p.window_from) where not p.last_page) as xids,
           pg_snapshot_xmin(p.window_from) as xids_from,
           pg_snapshot_xmax(p.window_to) as to_xid,
           case when not p.last_page then pg_snapshot_xmax(p.window_from) end as from_xid
      from :"schema".progress p
)
select m.*
  from c
  cross join :"schema".message m
 where m.available_at > now() and m.xid = any ((select c.xids from c)::xid8[])
   and m.xid >= (select c.xids_from from c) and m.xid < (select c.to_xid from c)
   and m.xid >= any (array[(select c.xids_from from c)]) and m.xid >= any (array[(select c.xids_from from c)])
   and m.xid >= any (array[(select c.xids_from from c)])
   and case when m.id <= c.floor_id then false
            when not pg_visible_in_snapshot(m.xid, c.window_to) then true
            else not c.last_page and m.id > c.upto_id and not pg_visible_in_snapshot(m.xid, c.window_from) end
union all
select m.*
  from c
  cross join :"schema".message m
 where m.available_at > now() and m.xid >= (select c.to_xid from c) and m.xid <= '18446744073709551615'
   and m.xid >= any (array[(select c.to_xid from c)]) and m.xid >= any (array[(select c.to_xid from c)])
   and m.xid >= any (array[(select c.to_xid from c)]) and m.xid >= any (array[(select c.to_xid from c)])
   and m.xid >= any (array[(select c.to_xid from c)])
   and case when m.id <= c.floor_id then false else true end
union all
select m.*
  from c
  cross join :"schema".message m
 where m.available_at > now() and m.xid >= (select c.from_xid from c) and m.xid < (select c.to_xid from c)
   and m.id > (select c.upto_id from c)
   and m.xid >= any (array[(select c.from_xid from c)]) and m.xid >= any (array[(select c.from_xid from c)])
   and m.xid >= any (array[(select c.from_xid from c)]) and m.xid >= any (array[(select c.from_xid from c)])
   and m.xid >= any (array[(select c.from_xid from c)])
   and case when m.id <= c.floor_id or m.xid = any (c.xids) then false else true end;

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
  from :"schema".unclaimed_later m
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
 where r.id = m.id
union all
-- No row, ever. But the planner expects a million here, at hardly a cost, where it expects a thousandth of those above; so that the
-- first hundred seem, as they are, too cheap for the query to be compiled first. For a condition on the id this part is left out.
select null, null, none.n::text, none.n::text, 'dispatched',
       null, null, null, null, null, null, null, null, null, null, null, null, null
  from generate_subscripts('{}'::int[], 1) none (n)
  cross join generate_subscripts('{}'::int[], 1) more;

revoke all on :"schema".unclaimed_later from public;

insert into :"schema".denpyo_migration (version, name) values (11, '0011_later');
