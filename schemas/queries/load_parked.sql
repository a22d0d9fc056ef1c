-- The rows of an open batch of parked rows, in id order. $1 relay; $2 batch; $3 what has more bytes comes as its length only
select m.id, m.message_id, m.topic,
       case when octet_length(m.key) <= $3::int then m.key end,
       case when octet_length(m.key_bytes) <= $3::int then m.key_bytes end,
       m.partition,
       case when octet_length(m.payload) <= $3::int then m.payload end,
       case when octet_length(m.payload_bytes) <= $3::int then m.payload_bytes end,
       case when pg_column_size(m.headers) <= 200 or octet_length(m.headers::text) <= $3::int then m.headers::text end,
       case when m.available_at > clock_timestamp() then m.available_at end,
       case when case when m.tombstone then m.payload is not null or m.payload_bytes is not null
                      else (m.payload is null) = (m.payload_bytes is null) end or m.key is not null and m.key_bytes is not null then 0
            when octet_length(m.payload) > $3::int then octet_length(m.payload)
            when octet_length(m.payload_bytes) > $3::int then octet_length(m.payload_bytes)
            when octet_length(m.key) > $3::int then -octet_length(m.key)
            when octet_length(m.key_bytes) > $3::int then -octet_length(m.key_bytes)
            when pg_column_size(m.headers) > 200 and octet_length(m.headers::text) > $3::int then -octet_length(m.headers::text) end,
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
