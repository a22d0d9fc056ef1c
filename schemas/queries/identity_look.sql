-- Where did this outbox live, and may we ask where it lives now? One row: the recorded system identifier, timeline and Kafka cluster, whether the
-- server's own may be read, whether the cursor is ahead of this server's transactions (then it is another cluster's), whether the server is in recovery.
-- $1 relay
select r.system_identifier, r.timeline, coalesce(r.cluster_id, newest.cluster_id),
       has_function_privilege('pg_catalog.pg_control_system()', 'execute')
       and has_function_privilege('pg_catalog.pg_current_wal_lsn()', 'execute')
       and has_function_privilege('pg_catalog.pg_walfile_name(pg_lsn)', 'execute'),
       coalesce(pg_snapshot_xmax(newest.window_to) > pg_snapshot_xmax(pg_current_snapshot()), false),
       pg_is_in_recovery()
from :"schema".relay r
left join lateral (select * from :"schema".batch b where b.relay = r.name order by b.id desc limit 1) newest on true
where r.name = $1::text
