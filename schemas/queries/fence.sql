-- First in every transaction that claims or settles: fails (division by zero, 22012) unless we still are the leader.
-- FOR KEY SHARE keeps a takeover, which is a key update of the same row, from happening before our commit; a renewal passes.
-- A condition on the epoch in the later statements would not fence: it can commit after another session has committed the next epoch.
-- $1 relay name, $2 epoch, $3 holder, $4 synchronous_commit for this transaction, $5 statement time-out
with leader as materialized (
    select 1 from :"schema".relay where name = $1::text and epoch = $2::bigint and holder = $3::uuid for key share
)
select 1 / count(*)::int,
       set_config('synchronous_commit', $4::text, true),
       set_config('statement_timeout', $5::text, true),
       set_config('idle_in_transaction_session_timeout', $5::text, true),
       -- A page must walk the primary key whatever the statistics say.
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true),
       -- What is switched off counts as very dear, and compiling a plan that looks dear takes a tenth of a second.
       set_config('jit', 'off', true),
       -- Where row-level security would hide rows, what follows fails instead.
       set_config('row_security', 'off', true)
from leader
