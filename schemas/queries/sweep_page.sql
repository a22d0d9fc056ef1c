-- One step of the sweep: what became of the next messages? Those whose page was closed and that have neither a receipt nor a parked
-- row, nor lie in a parked range, are parked: due now, so that they go out in the order of their key. Reads ids alone (the primary key,
-- receipts, parked rows, ranges);
-- a message itself is read only when nothing is known of it.
-- One row: the last id looked at (null: none), how many were looked at, how many were parked, the lowest of these.
-- $1 relay; $2 id to begin after; $3 most messages; $4 what to say of those that are found
with closed as materialized (
    -- The newest batch that is closed: what its window or the part of it that was paged holds, was claimed in closed batches, this or earlier ones.
    -- At or below floor_id all was, whatever the transactions' ids say: they are another cluster's.
    select r.floor_id, b.window_from, b.window_to, b.upto_id, b.last_page
    from :"schema".relay r
    left join lateral (select * from :"schema".batch b
                       where b.relay = r.name
                         and b.id = (select s.id from :"schema".settlement s where s.relay = r.name order by s.id desc limit 1)) b on true
    where r.name = $1::text
), page as materialized (
    select m.id from :"schema".message m where m.id > $2::bigint order by m.id limit $3::int
), span as materialized (
    select min(id) as low, max(id) as high, count(*) as seen from page
), receipted as materialized (
    select r.id
    from span
    cross join lateral (select s.ids from :"schema".settlement s
                        where s.min_id is not null
                          and int8range(s.min_id, s.max_id, '[]') && int8range(coalesce(span.low, 0), coalesce(span.high, 0), '[]')
                        offset 0) s
    cross join lateral unnest(s.ids) r (id)
    where r.id between span.low and span.high
), unaccounted as materialized (
    select id from page
    except select id from receipted
    except select p.id from span join :"schema".parked p on p.id between span.low and span.high
    except select r.id
    from span
    cross join lateral (select d.ids from :"schema".parked_range d
                        where int8range(d.min_id, d.max_id, '[]') && int8range(coalesce(span.low, 0), coalesce(span.high, 0), '[]')
                        offset 0) d
    cross join lateral unnest(d.ids) r (id)
    where r.id between span.low and span.high
), swept as (
    insert into :"schema".parked (id, relay, message_id, topic, state, next_attempt_at, error_code, error, first_error_at, last_error_at)
    select m.id, $1::text, m.message_id, m.topic, 'failed', now(), 'SWEPT', $4::text, now(), now()
    from unaccounted u
    cross join lateral (select * from :"schema".message m where m.id = u.id offset 0) m
    cross join closed c
    where case when m.id <= c.floor_id then true
               when c.window_to is null then false
               when pg_visible_in_snapshot(m.xid, c.window_from) then true
               when pg_visible_in_snapshot(m.xid, c.window_to) then c.last_page or m.id <= c.upto_id
               else false end
    on conflict do nothing
    returning id
)
select span.high, span.seen, (select count(*) from swept), (select min(id) from swept)
from span
