-- Takeover: compare-and-set on the epoch we saw. A key update: it waits for claims and settlements that hold FOR KEY SHARE.
-- $1 relay, $2 epoch seen, $3 holder, $4 holder info, $5 lease in ms, $6 version
update :"schema".relay
set epoch = epoch + 1, holder = $3::uuid, holder_info = $4::text, version = $6::text,
    lease_expires_at = clock_timestamp() + $5::bigint * interval '1 millisecond',
    heartbeat_at = clock_timestamp(), acquired_at = clock_timestamp(),
    condition = null, condition_since = null, condition_detail = null
where name = $1::text and epoch = $2::bigint and (holder is null or holder = $3::uuid or lease_expires_at < clock_timestamp())
returning epoch
