-- 0008: what waits and what is on the wire, at once, however many millions of rows there are.
--
-- The planner cannot know bounds that are looked up. It takes a pair of them for half a percent of a table, which in a large one is
-- so much that it compiles the query first (JIT, half a second), or works on it with several processes. One bound of such a pair is
-- therefore said three or five times more, as "> any (array[bound])": it means the same, the same index serves it, and the planner takes
-- each for a third of what is left. So these views are planned as the few rows that they mostly are, up to some hundred million messages.

-- Claimed and not closed. The order keeps the look-up, from the newest settlement on, from being turned into a join that reads
-- all batches; the upper bound says to the planner that they are few.
create or replace view :"schema".open_batch as
select b.*, r.floor_id
  from :"schema".relay r
  cross join lateral (
       select * from :"schema".batch b
        where b.relay = r.name
          and b.id > coalesce((select s.id from :"schema".settlement s
                                where s.relay = r.name order by s.id desc limit 1), -1)
          and b.id <= (select n.id from :"schema".batch n where n.relay = r.name order by n.id desc limit 1)
        order by b.id) b;

-- Rows that no batch has claimed: not visible in window_to, or above the last page of a window that is not finished.
-- The last condition of each part says so exactly and is all that counts (a CASE: no index is to be tried for its parts). What
-- stands before it are three ranges that share no row, of which together each such row is in one: of transactions that ran when the
-- window began or ended; of later ones; and by id, above the last page of an unfinished window. Each is an index scan of its own,
-- so that the first hundred rows cost no more than they do. In an unfinished window the rows above its last page come by id once that page
-- has reached what is fresh; before that they lie behind old rows with higher ids and come by xid.
create or replace view :"schema".unclaimed as
with p as materialized (
    select * from :"schema".progress
), c as materialized (
    select p.*,
           array(select pg_snapshot_xip(p.window_to)
                 union all
                 select pg_snapshot_xip(p.window_from) where not p.last_page) as xids,
           pg_snapshot_xmin(p.window_from) as xids_from,
           pg_snapshot_xmax(case when p.last_page or p.fresh_id <= p.upto_id
                                 then p.window_to else p.window_from end) as from_xid,
           case when not p.last_page and p.fresh_id <= p.upto_id then p.upto_id end as above_id
      from p
)
select m.*
  from c
  cross join :"schema".message m
 where m.xid = any ((select c.xids from c)::xid8[])
   and m.xid >= (select c.xids_from from c) and m.xid < (select c.from_xid from c)
   and m.xid >= any (array[(select c.xids_from from c)]) and m.xid >= any (array[(select c.xids_from from c)])
   and m.xid >= any (array[(select c.xids_from from c)])
   and case when m.id <= c.floor_id then false
            when not pg_visible_in_snapshot(m.xid, c.window_to) then true
            else not c.last_page and m.id > c.upto_id and not pg_visible_in_snapshot(m.xid, c.window_from) end
union all
select m.*
  from c
  cross join :"schema".message m
 where m.xid >= (select c.from_xid from c) and m.xid <= '18446744073709551615'
   and m.xid >= any (array[(select c.from_xid from c)]) and m.xid >= any (array[(select c.from_xid from c)])
   and m.xid >= any (array[(select c.from_xid from c)]) and m.xid >= any (array[(select c.from_xid from c)])
   and m.xid >= any (array[(select c.from_xid from c)])
   and case when m.id <= c.floor_id then false
            when not pg_visible_in_snapshot(m.xid, c.window_to) then true
            else not c.last_page and m.id > c.upto_id and not pg_visible_in_snapshot(m.xid, c.window_from) end
union all
select m.*
  from c
  cross join :"schema".message m
 where m.id > (select c.above_id from c) and m.id <= 9223372036854775807
   and m.id > any (array[(select c.above_id from c)]) and m.id > any (array[(select c.above_id from c)])
   and m.id > any (array[(select c.above_id from c)]) and m.id > any (array[(select c.above_id from c)])
   and m.id > any (array[(select c.above_id from c)])
   and case when m.id <= c.floor_id or m.xid >= c.from_xid or m.xid >= c.xids_from and m.xid = any (c.xids) then false
            when not pg_visible_in_snapshot(m.xid, c.window_to) then true
            else not c.last_page and m.id > c.upto_id and not pg_visible_in_snapshot(m.xid, c.window_from) end;

-- Rows in pages of open batches, unless parked: they may be on the wire. The join with the batch is exact; the ranges before it
-- are by id where the open pages are dense, else (a page that begins with a late commit spans all rows since) by xid.
create or replace view :"schema".claimed as
with o as materialized (
    select * from :"schema".open_batch where parked_ids is null
), c as materialized (
    select min(after_id) as after_id, max(upto_id) as upto_id,
           max(upto_id) - min(after_id) <= 4 * sum(row_count) + 1000 as is_dense,
           (array_agg(pg_snapshot_xmax(window_from) order by id))[1] as from_xid,
           (array_agg(pg_snapshot_xmax(window_to) order by id desc))[1] as to_xid,
           array(select pg_snapshot_xip(window_from) from o) as xids,
           (array_agg(pg_snapshot_xmin(window_from) order by id))[1] as xids_from
      from o
)
select m.*, o.claimed_at
  from :"schema".message m
  join o on case when m.id <= greatest(o.after_id, o.floor_id) or m.id > o.upto_id then false
                 else pg_visible_in_snapshot(m.xid, o.window_to) and not pg_visible_in_snapshot(m.xid, o.window_from) end
 where (m.id > (select c.after_id from c where c.is_dense) and m.id <= (select c.upto_id from c where c.is_dense)
           and m.id > any (array[(select c.after_id from c where c.is_dense)])
           and m.id > any (array[(select c.after_id from c where c.is_dense)])
           and m.id > any (array[(select c.after_id from c where c.is_dense)])
           and m.id > any (array[(select c.after_id from c where c.is_dense)])
           and m.id > any (array[(select c.after_id from c where c.is_dense)])
        or m.xid = any ((select c.xids from c where not c.is_dense)::xid8[])
           and m.id > (select c.after_id from c) and m.id <= (select c.upto_id from c)
           and m.xid >= any (array[(select c.xids_from from c)]) and m.xid >= any (array[(select c.xids_from from c)])
           and m.xid >= any (array[(select c.xids_from from c)])
        or m.xid >= (select c.from_xid from c where not c.is_dense)
           and m.xid < (select c.to_xid from c where not c.is_dense)
           and m.xid >= any (array[(select c.from_xid from c where not c.is_dense)])
           and m.xid >= any (array[(select c.from_xid from c where not c.is_dense)])
           and m.xid >= any (array[(select c.from_xid from c where not c.is_dense)])
           and m.id > (select c.after_id from c) and m.id <= (select c.upto_id from c))
   and not exists (select from :"schema".parked p where p.id = m.id);

insert into :"schema".denpyo_migration (version, name) values (8, '0008_answers');
