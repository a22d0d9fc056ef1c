-- Batches that were claimed and not closed, oldest first. $1 relay, $2 newest settlement, $3 newest batch that is known already
select b.id, b.window_from::text, b.window_to::text, b.after_id, b.upto_id, b.last_page, b.row_count, b.parked_ids is not null
from :"schema".batch b
where b.relay = $1::text and b.id > $2::bigint and b.id > $3::bigint
order by b.id
