-- A page of a window as one stream along the primary key: rows committed between $1 and $2, in id order.
-- $1, $2 pg_snapshot; $3 id to begin after; $4 last id; $5 most rows; $6 payloads of more bytes come as their length only
select m.id, m.message_id, m.topic, m.key, m.key_bytes, m.partition,
       case when octet_length(m.payload) <= $6::int then m.payload end,
       case when octet_length(m.payload_bytes) <= $6::int then m.payload_bytes end,
       m.headers::text,
       case when m.available_at > clock_timestamp() then m.available_at end,
       nullif(greatest(octet_length(m.payload), octet_length(m.payload_bytes), $6::int), $6::int)::bigint
from :"schema".message m
where m.id > $3::bigint and m.id <= $4::bigint
  and pg_visible_in_snapshot(m.xid, $2::pg_snapshot)
  and not pg_visible_in_snapshot(m.xid, $1::pg_snapshot)
order by m.id
limit $5::int
