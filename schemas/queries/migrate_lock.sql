-- One init at a time in a database, until the end of its transaction. What it changes it waits for 2 s at most: behind a lock that is waited
-- for, the relay, writers and readers queue.
select pg_advisory_xact_lock(hashtextextended('denpyo init ' || :'schema', 0)), set_config('lock_timeout', '2s', true);
