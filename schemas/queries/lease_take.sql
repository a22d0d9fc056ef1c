-- Takeover: compare-and-set on the epoch we saw. No row while claims or settlements hold the row FOR KEY SHARE: the next look tries
-- again. To wait behind them is to wait for as long as a frozen leader's transaction stays open, and an answer that comes when nobody
-- waits for it any more takes the leadership for nobody.
-- $1 relay, $2 epoch seen, $3 holder, $4 holder info, $5 lease in ms, $6 version
update :"schema".relay
set epoch = epoch + 1, holder = $3::uuid, holder_info = $4::text, version = $6::text,
    lease_expires_at = clock_timestamp() + $5::bigint * interval '1 millisecond',
    heartbeat_at = clock_timestamp(), acquired_at = clock_timestamp(),
    condition = null, condition_since = null, condition_detail = null
where name = (select free.name from :"schema".relay free
              where free.name = $1::text and free.epoch = $2::bigint
                and (free.holder is null or free.holder = $3::uuid or free.lease_expires_at < clock_timestamp())
              for update skip locked)
returning epoch
