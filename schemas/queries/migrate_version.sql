-- The number of the newest migration applied.
select coalesce(max(version), 0) from :"schema".denpyo_migration;
