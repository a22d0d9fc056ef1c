-- Per topic: what waits, what is in trouble, since when, and when something last went out. One JSON object a row.
select row_to_json(t)
  from (select topic, pending, delayed, held, requesting, failed, rejected, oldest_pending_at,
               round(oldest_pending_seconds::numeric, 1) as oldest_pending_seconds,
               last_dispatched_at,
               round(date_part('epoch', clock_timestamp() - last_dispatched_at)::numeric, 1) as last_dispatched_seconds
          from :"schema".lag
         order by topic) t;
