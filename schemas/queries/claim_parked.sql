-- Parked rows whose time has come, in id order: failed and delayed ones that are due, held ones whose blocker is resolved, and those asked for by id.
-- $1 relay; $2 bigint[] ids whose waiters are released; $3 bigint[] ids asked for; $4 most rows; $5 payloads of more bytes come as their length only
with due as materialized (
    (select p.id from :"schema".parked p
     where p.relay = $1::text and p.state in ('failed', 'delayed', 'requesting') and p.next_attempt_at <= clock_timestamp()
     order by p.next_attempt_at, p.id limit $4::int)
    union
    (select waiter.id from unnest($2::bigint[]) blocker
     cross join lateral (select p.id from :"schema".parked p
                         where p.waits_for_id = blocker and p.state = 'held' order by p.id limit $4::int) waiter)
    union
    (select p.id from unnest($3::bigint[]) wanted join :"schema".parked p on p.id = wanted
     where p.state in ('failed', 'delayed', 'requesting'))
)
select m.id, m.message_id, m.topic, m.key, m.key_bytes, m.partition,
       case when octet_length(m.payload) <= $5::int then m.payload end,
       case when octet_length(m.payload_bytes) <= $5::int then m.payload_bytes end,
       m.headers::text,
       case when m.available_at > clock_timestamp() then m.available_at end,
       nullif(greatest(octet_length(m.payload), octet_length(m.payload_bytes), $5::int), $5::int)::bigint,
       m.attempts, m.waits_for_id, m.scope = 'topic'
from (select due.id from due order by due.id limit $4::int) page
-- "offset 0" keeps this two look-ups for each id: a join in the order of m.id would walk the table
cross join lateral (select m.*, p.attempts, p.waits_for_id, p.scope
                    from :"schema".parked p join :"schema".message m on m.id = p.id
                    where p.id = page.id offset 0) m
order by page.id
