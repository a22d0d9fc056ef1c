-- A batch of parked rows takes ranges, of each the ids up to the highest that the batch has; the rest of it becomes a range of its own.
-- $1 relay, $2 batch; one element a row: $3 bigint[] ranges, $4 bigint[] ids
with taken as materialized (
    select u.range_id, max(u.id) as upto_id from unnest($3::bigint[], $4::bigint[]) u(range_id, id) group by u.range_id
), rest as (
    insert into :"schema".parked_range (relay, topic, waits_for_id, ids, claimed_at, parked_at)
    select d.relay, d.topic, d.waits_for_id, array(select u.id from unnest(d.ids) u(id) where u.id > taken.upto_id order by u.id),
           d.claimed_at, d.parked_at
    from taken join :"schema".parked_range d on d.id = taken.range_id
    where d.max_id > taken.upto_id
)
update :"schema".parked_range d
set taken_by = $2::bigint,
    ids = case when d.max_id > taken.upto_id
               then array(select u.id from unnest(d.ids) u(id) where u.id <= taken.upto_id order by u.id) else d.ids end
from taken
where d.id = taken.range_id and d.relay = $1::text
