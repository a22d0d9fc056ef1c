-- Rows of the batch that wait for their topic, those of each topic in one range.
-- $1 relay, $2 batch, $3 text[] topics, $4 bigint[] ids that their rows wait for; one element a row: $5 bigint[] ids, $6 smallint[] place of its
-- topic in $3
insert into :"schema".parked_range (relay, topic, waits_for_id, ids, claimed_at)
select $1::text, ($3::text[])[u.place], ($4::bigint[])[u.place], array_agg(u.id order by u.id),
       (select b.claimed_at from :"schema".batch b where b.relay = $1::text and b.id = $2::bigint)
from unnest($5::bigint[], $6::smallint[]) u(id, place)
group by u.place
