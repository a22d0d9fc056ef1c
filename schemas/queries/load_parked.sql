-- The rows of an open batch of parked rows, in id order. $1 relay; $2 batch; $3 payloads of more bytes come as their length only
select m.id, m.message_id, m.topic, m.key, m.key_bytes, m.partition,
       case when octet_length(m.payload) <= $3::int then m.payload end,
       case when octet_length(m.payload_bytes) <= $3::int then m.payload_bytes end,
       m.headers::text,
       case when m.available_at > clock_timestamp() then m.available_at end,
       nullif(greatest(octet_length(m.payload), octet_length(m.payload_bytes), $3::int), $3::int)::bigint,
       p.attempts, p.waits_for_id
from :"schema".batch b
cross join lateral unnest(b.parked_ids) taken
join :"schema".parked p on p.id = taken
join :"schema".message m on m.id = taken
where b.relay = $1::text and b.id = $2::bigint
order by m.id
