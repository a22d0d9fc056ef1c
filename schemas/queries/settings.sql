-- Before a poll, in its transaction: an estimate that is far too high must not have the plan compiled (jit), which takes longer than
-- any poll. Nothing is written: no transaction id is used up.
select set_config('jit', 'off', true)
