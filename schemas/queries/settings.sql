-- Before a poll or another look at the ledger, in its transaction: an estimate that is far too high must not have the plan compiled (jit), which takes longer than
-- any poll; and a time-out that the role prescribes must not end it. Nothing is written: no transaction id is used up.
-- A plan that was made while a table was empty reads all of it, and is kept until autovacuum first comes by: there is an index for every look.
-- Where row-level security would hide rows, what follows fails instead: the cursor must not move past what it cannot see.
-- $1 statement time-out
select set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true), set_config('statement_timeout', $1::text, true), set_config('row_security', 'off', true)
