-- Before a poll, in its transaction: an estimate that is far too high must not have the plan compiled (jit), which takes longer than
-- any poll; and a time-out that the role prescribes must not end it. Nothing is written: no transaction id is used up.
-- $1 statement time-out
select set_config('jit', 'off', true), set_config('statement_timeout', $1::text, true)
