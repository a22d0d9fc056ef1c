-- The rows of an open batch whose page spans more than it holds (it begins with the window, or with a straggler): found by (xid, id), so that
-- what was settled in between is not walked.
-- $1, $2 pg_snapshot; $3 id it begins after; $4 its last id; $5 most rows; $6 what has more bytes comes as its length only
select m.id, m.message_id, m.topic,
       case when octet_length(m.key) <= $6::int then m.key end,
       case when octet_length(m.key_bytes) <= $6::int then m.key_bytes end,
       m.partition,
       case when octet_length(m.payload) <= $6::int then m.payload end,
       case when octet_length(m.payload_bytes) <= $6::int then m.payload_bytes end,
       case when pg_column_size(m.headers) <= 200 then m.headers::text when pg_column_size(m.headers) > $6::int then null
            when octet_length(m.headers::text) <= $6::int then m.headers::text end,
       case when m.available_at > clock_timestamp() then m.available_at end,
       case when case when m.tombstone then m.payload is not null or m.payload_bytes is not null
                      else (m.payload is null) = (m.payload_bytes is null) end or m.key is not null and m.key_bytes is not null then 0
            when octet_length(m.payload) > $6::int then octet_length(m.payload)
            when octet_length(m.payload_bytes) > $6::int then octet_length(m.payload_bytes)
            when octet_length(m.key) > $6::int then -octet_length(m.key)
            when octet_length(m.key_bytes) > $6::int then -octet_length(m.key_bytes)
            when pg_column_size(m.headers) > $6::int then -pg_column_size(m.headers)
            when pg_column_size(m.headers) > 200 and octet_length(m.headers::text) > $6::int then -octet_length(m.headers::text) end
from (
    select both_parts.id from (
        (select m.id from :"schema".message m
         where m.xid >= pg_snapshot_xmax($1::pg_snapshot) and m.xid < pg_snapshot_xmax($2::pg_snapshot)
           and pg_visible_in_snapshot(m.xid, $2::pg_snapshot)
           and m.id > $3::bigint and m.id <= $4::bigint)
        union all
        (select late.id from pg_snapshot_xip($1::pg_snapshot) x
         cross join lateral (select m.id from :"schema".message m
                             where (m.xid, m.id) > (x, $3::bigint) and (m.xid, m.id) <= (x, $4::bigint)
                             order by m.xid, m.id limit $5::int) late
         where pg_visible_in_snapshot(x, $2::pg_snapshot))
    ) both_parts
    order by both_parts.id limit $5::int
) page
-- "offset 0" keeps this a look-up for each id: a join in the order of m.id would walk the table
cross join lateral (select * from :"schema".message m where m.id = page.id offset 0) m
order by page.id
