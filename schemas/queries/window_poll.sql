-- What committed since snapshot $1? One row: the window's end, whether the server is in recovery, the lowest and highest id of the
-- fresh part (xid >= xmax of $1), and those transactions that ran at $1, have ended since and left rows ("stragglers").
-- Costs what is new; when the snapshot has not changed, nothing is read.
-- $1 pg_snapshot the window begins after, $2 pg_snapshot it ends with (null: now), $3 floor: rows up to this id have transaction ids of
-- another cluster and do not count
with bounds as materialized (
    select coalesce($2::pg_snapshot, pg_current_snapshot()) as upto, pg_is_in_recovery() as in_recovery
)
select b.upto::text, b.in_recovery, fresh.low, fresh.high, late.xids::text
from bounds b
cross join lateral (
    -- "offset 0" keeps the planner from turning min(id) into a walk of the primary key past everything that is settled, "+ 0" from
    -- reading all of it above the floor: a plan that was made while the table was empty does not know better, and is kept.
    select min(x.id) as low, max(x.id) as high
    from (select m.id from :"schema".message m
          where m.xid >= pg_snapshot_xmax($1::pg_snapshot) and m.xid < pg_snapshot_xmax(b.upto)
            and b.upto::text <> ($1::pg_snapshot)::text
            and m.id + 0 > $3::bigint
          offset 0) x
) fresh
cross join lateral (
    select array_agg(x) as xids
    from pg_snapshot_xip($1::pg_snapshot) x
    where pg_visible_in_snapshot(x, b.upto)
      -- Said as a range of (xid, id): otherwise the planner may read the whole table for a handful of x.
      and x = (select m.xid from :"schema".message m where (m.xid, m.id) > (x, $3::bigint) order by m.xid, m.id limit 1)
) late
