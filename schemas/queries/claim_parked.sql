-- Parked rows whose time has come, in id order: failed and delayed ones that are due, skipped ones whose followers are to hear of it, held ones
-- whose blocker is resolved, one by one or in ranges, and those asked for by id. What a person may decide about meanwhile is locked, and passed
-- over when a person has it locked: its state is the one that the lock found. Held rows are the relay's alone.
-- The page is to hold the lowest ids of all that are released. A range's ids are above its lowest, so ranges are opened in that order until
-- all but the last opened one fill a page, and the page ends before the first one that was not: stragglers make ranges overlap. A taken
-- range thus loses its lowest ids. Only ids whose message is there count, so that removed ones cannot fill a page with nothing;
-- of each range as many as a page holds are looked for.
-- $1 relay; $2 bigint[] ids whose waiters are released; $3 bigint[] ids asked for; $4 most rows; $5 what has more bytes comes as its length only;
-- $6 bigint[] those of $2 for which a whole topic waits
with recursive due as materialized (
    select p.id, p.attempts, p.waits_for_id, p.scope, p.state, null::bigint as range_id from :"schema".parked p
    where p.relay = $1::text and p.state in ('failed', 'delayed', 'requesting', 'skipped') and p.next_attempt_at <= clock_timestamp()
      and (select true from :"schema".message m where m.id = p.id)
    order by p.next_attempt_at, p.id limit $4::int
    for update skip locked
), wanted as materialized (
    select p.id, p.attempts, p.waits_for_id, p.scope, p.state, null::bigint
    from unnest($3::bigint[]) wanted join :"schema".parked p on p.id = wanted
    where p.state in ('failed', 'delayed', 'requesting')
    for update of p skip locked
), opened (id, waits_for_id, min_id, ids, fill) as (
    select null::bigint, null::bigint, 0::bigint, null::bigint[], 0::bigint
    union all
    select next.id, next.waits_for_id, next.min_id, next.ids, opened.fill + coalesce(cardinality(opened.ids), 0)
    from opened
    cross join lateral (
        select d.id, d.waits_for_id, d.min_id,
               array(select u.id from (select u.id from unnest(d.ids) u(id) order by u.id offset 0) u
                     cross join lateral (select from :"schema".message m where m.id = u.id offset 0) present
                     order by u.id limit $4::int) as ids
        from unnest($6::bigint[]) blocker
        cross join lateral (select * from :"schema".parked_range d
                            where d.waits_for_id = blocker and d.min_id > opened.min_id order by d.min_id limit 1) d
        order by d.min_id limit 1) next
    where opened.fill < $4::int
), closed as materialized (
    -- The lowest id of the ranges that were not opened.
    select min(d.min_id) as min_id
    from (select max(min_id) as min_id from opened) newest
    cross join unnest($6::bigint[]) blocker
    cross join lateral (select d.min_id from :"schema".parked_range d
                        where d.waits_for_id = blocker and d.min_id > newest.min_id order by d.min_id limit 1) d
), page as materialized (
    select * from (
        select * from due
        union
        select * from wanted
        union
        (select waiter.* from unnest($2::bigint[]) blocker
         cross join lateral (select p.id, p.attempts, p.waits_for_id, p.scope, p.state, null::bigint from :"schema".parked p
                             where p.waits_for_id = blocker and p.state = 'held'
                               and (select true from :"schema".message m where m.id = p.id)
                             order by p.id limit $4::int) waiter)
        union all
        select u.id, 0, opened.waits_for_id, 'topic', 'held', opened.id from opened cross join lateral unnest(opened.ids) u(id)
    ) all_of_them
    where id < coalesce((select min_id from closed), 9223372036854775807)
    order by id limit $4::int
)
select m.id, m.message_id, m.topic,
       case when octet_length(m.key) <= $5::int then m.key end,
       case when octet_length(m.key_bytes) <= $5::int then m.key_bytes end,
       m.partition,
       case when octet_length(m.payload) <= $5::int then m.payload end,
       case when octet_length(m.payload_bytes) <= $5::int then m.payload_bytes end,
       case when pg_column_size(m.headers) <= 200 then m.headers::text when pg_column_size(m.headers) > $5::int then null
            when octet_length(m.headers::text) <= $5::int then m.headers::text end,
       case when m.available_at > clock_timestamp() then m.available_at end,
       case when case when m.tombstone then m.payload is not null or m.payload_bytes is not null
                      else (m.payload is null) = (m.payload_bytes is null) end or m.key is not null and m.key_bytes is not null then 0
            when octet_length(m.payload) > $5::int then octet_length(m.payload)
            when octet_length(m.payload_bytes) > $5::int then octet_length(m.payload_bytes)
            when octet_length(m.key) > $5::int then -octet_length(m.key)
            when octet_length(m.key_bytes) > $5::int then -octet_length(m.key_bytes)
            when pg_column_size(m.headers) > $5::int then -pg_column_size(m.headers)
            when pg_column_size(m.headers) > 200 and octet_length(m.headers::text) > $5::int then -octet_length(m.headers::text) end,
       page.attempts, page.waits_for_id, case page.scope when 'topic' then 1 when 'partition' then 2 else 0 end, page.state, page.range_id
from page
-- "offset 0" keeps this a look-up for each id: a join in the order of m.id would walk the table
cross join lateral (select m.* from :"schema".message m where m.id = page.id offset 0) m
order by page.id
