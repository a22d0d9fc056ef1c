-- Renewal: not a key update, passes beside claims and settlements. No row: somebody else leads. The condition's time is that of its
-- first renewal.
-- $1 relay, $2 epoch, $3 holder, $4 lease in ms, $5 condition (null: all is well), $6 its detail
update :"schema".relay
set lease_expires_at = clock_timestamp() + $4::bigint * interval '1 millisecond', heartbeat_at = clock_timestamp(),
    condition = $5::text, condition_detail = $6::text,
    condition_since = case when $5::text is null then null
                           when condition = $5::text then condition_since
                           else clock_timestamp() end
where name = $1::text and epoch = $2::bigint and holder = $3::uuid
returning epoch
