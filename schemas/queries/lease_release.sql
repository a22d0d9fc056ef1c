-- A clean stop gives the lease back, so that a standby need not wait for it to expire.
-- $1 relay, $2 epoch, $3 holder
update :"schema".relay
set holder = null, lease_expires_at = '-infinity', heartbeat_at = clock_timestamp(),
    condition = null, condition_since = null, condition_detail = null
where name = $1::text and epoch = $2::bigint and holder = $3::uuid
