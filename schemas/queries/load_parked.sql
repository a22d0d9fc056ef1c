-- The rows of an open batch of parked rows, in id order. $1 relay; $2 batch; $3 payloads of more bytes come as their length only
select m.id, m.message_id, m.topic, m.key, m.key_bytes, m.partition,
       case when octet_length(m.payload) <= $3::int then m.payload end,
       case when octet_length(m.payload_bytes) <= $3::int then m.payload_bytes end,
       m.headers::text,
       case when m.available_at > clock_timestamp() then m.available_at end,
       nullif(greatest(octet_length(m.payload), octet_length(m.payload_bytes), $3::int), $3::int)::bigint,
       m.attempts, m.waits_for_id, m.scope = 'topic', m.state
from (select taken as id
      from :"schema".batch b cross join lateral unnest(b.parked_ids) taken
      where b.relay = $1::text and b.id = $2::bigint
      order by taken) page
-- "offset 0" keeps this two look-ups for each id: a join in the order of m.id would walk the table
cross join lateral (select m.*, p.attempts, p.waits_for_id, p.scope, p.state
                    from :"schema".parked p join :"schema".message m on m.id = p.id
                    where p.id = page.id offset 0) m
order by page.id
