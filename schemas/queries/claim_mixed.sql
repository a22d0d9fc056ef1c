-- A page of a window that has stragglers, two ordered streams merged: along the primary key the fresh part only (so that a straggler's low id
-- does not make it walk everything settled in between), and by (xid, id) the stragglers.
-- $1, $2 pg_snapshot; $3 id to begin after in the fresh part; $4 its last id; $5 most rows; $6 what has more bytes comes as its length only;
-- $7 xid8[] the stragglers; $8 id to begin after among them
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
    select both_streams.id from (
        (select m.id from :"schema".message m
         where m.id > $3::bigint and m.id <= $4::bigint
           and pg_visible_in_snapshot(m.xid, $2::pg_snapshot)
           -- "is true" hides the condition from the index on xid: the primary key must be walked
           and (m.xid >= pg_snapshot_xmax($1::pg_snapshot)) is true
         order by m.id limit $5::int)
        union all
        (select late.id from unnest($7::xid8[]) x
         -- pairs are compared and sorted, because "xid = x" in the order of id would leave the primary key to be walked
         cross join lateral (select m.id from :"schema".message m
                             where (m.xid, m.id) > (x, $8::bigint) and (m.xid, m.id) <= (x, 9223372036854775807)
                             order by m.xid, m.id limit $5::int) late)
    ) both_streams
    order by both_streams.id limit $5::int
) page
-- "offset 0" keeps this a look-up for each id: a join in the order of m.id would walk the table
cross join lateral (select * from :"schema".message m where m.id = page.id offset 0) m
order by page.id
