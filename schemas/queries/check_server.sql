-- What server this is, who we are there, and what time it has. Needs no schema. One JSON object.
select row_to_json(t)
  from (select current_setting('server_version') as version,
               pg_is_in_recovery() as in_recovery,
               current_database() as database,
               current_user as "user",
               pg_backend_pid() as backend_pid,
               date_part('epoch', clock_timestamp()) as clock) t;
