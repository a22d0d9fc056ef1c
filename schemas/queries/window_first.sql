-- The same answer as window_poll for the very first window, which holds every committed row: two look-ups in the primary key.
-- $1 pg_snapshot the window ends with (null: now)
select coalesce($1::pg_snapshot, pg_current_snapshot())::text,
       pg_is_in_recovery(),
       (select m.id from :"schema".message m order by m.id limit 1),
       (select m.id from :"schema".message m order by m.id desc limit 1),
       null::text
