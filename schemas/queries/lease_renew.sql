-- Renewal: not a key update, passes beside claims and settlements. No row: somebody else leads.
-- $1 relay, $2 epoch, $3 holder, $4 lease in ms
update :"schema".relay
set lease_expires_at = clock_timestamp() + $4::bigint * interval '1 millisecond', heartbeat_at = clock_timestamp()
where name = $1::text and epoch = $2::bigint and holder = $3::uuid
returning epoch
