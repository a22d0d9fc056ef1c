-- The rows of an open batch of parked rows, in id order: each is parked, or in a range that the batch has taken.
-- $1 relay; $2 batch; $3 what has more bytes comes as its length only
with ranged as materialized (
    select u.id, d.waits_for_id, d.id as range_id
    from :"schema".parked_range d cross join lateral unnest(d.ids) u(id)
    where d.relay = $1::text and d.taken_by = $2::bigint
), page as materialized (
    select taken as id, ranged.waits_for_id, ranged.range_id
    from :"schema".batch b
    cross join lateral unnest(b.parked_ids) taken
    left join ranged on ranged.id = taken
    where b.relay = $1::text and b.id = $2::bigint
)
select m.id, m.message_id, m.topic,
       case when octet_length(m.key) <= $3::int then m.key end,
       case when octet_length(m.key_bytes) <= $3::int then m.key_bytes end,
       m.partition,
       case when octet_length(m.payload) <= $3::int then m.payload end,
       case when octet_length(m.payload_bytes) <= $3::int then m.payload_bytes end,
       case when pg_column_size(m.headers) <= 200 then m.headers::text when pg_column_size(m.headers) > $3::int then null
            when octet_length(m.headers::text) <= $3::int then m.headers::text end,
       case when m.available_at > clock_timestamp() then m.available_at end,
       case when case when m.tombstone then m.payload is not null or m.payload_bytes is not null
                      else (m.payload is null) = (m.payload_bytes is null) end or m.key is not null and m.key_bytes is not null then 0
            when octet_length(m.payload) > $3::int then octet_length(m.payload)
            when octet_length(m.payload_bytes) > $3::int then octet_length(m.payload_bytes)
            when octet_length(m.key) > $3::int then -octet_length(m.key)
            when octet_length(m.key_bytes) > $3::int then -octet_length(m.key_bytes)
            when pg_column_size(m.headers) > $3::int then -pg_column_size(m.headers)
            when pg_column_size(m.headers) > 200 and octet_length(m.headers::text) > $3::int then -octet_length(m.headers::text) end,
       case when page.range_id is null then p.attempts else 0 end, coalesce(page.waits_for_id, p.waits_for_id),
       case when page.range_id is not null or p.scope = 'topic' then 1 when p.scope = 'partition' then 2 else 0 end,
       case when page.range_id is null then p.state else 'held' end, page.range_id
from page
-- "offset 0" keeps these look-ups for each id: a join in the order of the tables would walk them
left join lateral (select * from :"schema".parked p where p.id = page.id and page.range_id is null offset 0) p on true
cross join lateral (select * from :"schema".message m where m.id = page.id offset 0) m
where page.range_id is not null or p.id is not null
order by page.id
