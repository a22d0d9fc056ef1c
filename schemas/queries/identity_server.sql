-- The cluster's own identity: its system identifier, and its timeline by the name of the WAL segment (right after a promotion the control file
-- still has the old one). Not on a server in recovery.
select s.system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int
from pg_control_system() s
