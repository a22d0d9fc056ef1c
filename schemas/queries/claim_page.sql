-- A page of a window as one stream along the primary key: rows committed between $1 and $2, in id order.
-- $1, $2 pg_snapshot; $3 id to begin after; $4 last id; $5 most rows; $6 what has more bytes comes as its length only
select m.id, m.message_id, m.topic,
       case when octet_length(m.key) <= $6::int then m.key end,
       case when octet_length(m.key_bytes) <= $6::int then m.key_bytes end,
       m.partition,
       case when octet_length(m.payload) <= $6::int then m.payload end,
       case when octet_length(m.payload_bytes) <= $6::int then m.payload_bytes end,
       case when pg_column_size(m.headers) <= 200 then m.headers::text when pg_column_size(m.headers) > $6::int then null
            when octet_length(m.headers::text) <= $6::int then m.headers::text end,
       case when m.available_at is not null and m.available_at > clock_timestamp() then m.available_at end,
       -- The usual row first: all that follows costs a tenth of reading it.
       case when octet_length(m.payload) <= $6::int and octet_length(m.key) <= $6::int and m.payload_bytes is null and m.key_bytes is null
                 and not m.tombstone and m.headers is null then null
            when case when m.tombstone then m.payload is not null or m.payload_bytes is not null
                      else (m.payload is null) = (m.payload_bytes is null) end or m.key is not null and m.key_bytes is not null then 0
            when octet_length(m.payload) > $6::int then octet_length(m.payload)
            when octet_length(m.payload_bytes) > $6::int then octet_length(m.payload_bytes)
            when octet_length(m.key) > $6::int then -octet_length(m.key)
            when octet_length(m.key_bytes) > $6::int then -octet_length(m.key_bytes)
            when pg_column_size(m.headers) > $6::int then -pg_column_size(m.headers)
            when pg_column_size(m.headers) > 200 and octet_length(m.headers::text) > $6::int then -octet_length(m.headers::text) end
from :"schema".message m
where m.id > $3::bigint and m.id <= $4::bigint
  and pg_visible_in_snapshot(m.xid, $2::pg_snapshot)
  and not pg_visible_in_snapshot(m.xid, $1::pg_snapshot)
order by m.id
limit $5::int
