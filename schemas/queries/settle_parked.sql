-- The batch's rows that left the straight way, or came back to it in vain. Arrays, one element a row.
-- $1 relay, $2 batch, $3 ids, $4 message ids, $5 topics, $6 states, $7 scopes, $8 attempts, $9 ms until the next attempt,
-- $10 when due (microseconds since 2000-01-01 UTC), $11 ids waited for, $12 error codes, $13 errors,
-- $14 partitions (of what is in trouble for its partition's sake)
with moment as materialized (select clock_timestamp() as at)
insert into :"schema".parked (id, relay, message_id, topic, state, scope, attempts, next_attempt_at, waits_for_id, error_code, error,
                              first_error_at, last_error_at, claimed_at, partition)
select u.id, $1::text, u.message_id, u.topic, u.state, u.scope, u.attempts,
       case when u.delay_ms is not null then moment.at + u.delay_ms * interval '1 millisecond'
            when u.due_us = 9223372036854775807 then 'infinity'
            -- Two parts, for a number times an interval is rounded to 53 bits.
            else timestamptz '2000-01-01 00:00:00+00' + u.due_us / 3600000000 * interval '1 hour'
                 + u.due_us % 3600000000 * interval '1 microsecond' end,
       u.waits_for_id, u.error_code, u.error,
       case when u.error_code is not null then moment.at end,
       case when u.error_code is not null then moment.at end,
       b.claimed_at, u.partition
from moment
cross join unnest($3::bigint[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::int[], $9::bigint[], $10::bigint[], $11::bigint[],
            $12::text[], $13::text[], $14::int[])
         u(id, message_id, topic, state, scope, attempts, delay_ms, due_us, waits_for_id, error_code, error, partition)
left join :"schema".batch b on b.relay = $1::text and b.id = $2::bigint
on conflict (id) do update
set state = excluded.state, scope = excluded.scope, attempts = excluded.attempts, next_attempt_at = excluded.next_attempt_at,
    waits_for_id = excluded.waits_for_id,
    error_code = coalesce(excluded.error_code, parked.error_code), error = coalesce(excluded.error, parked.error),
    first_error_at = coalesce(parked.first_error_at, excluded.first_error_at),
    last_error_at = coalesce(excluded.last_error_at, parked.last_error_at), claimed_at = excluded.claimed_at,
    partition = excluded.partition
