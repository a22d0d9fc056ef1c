-- One init at a time in a database, until the end of its transaction.
select pg_advisory_xact_lock(hashtextextended('denpyo init ' || :'schema', 0));
