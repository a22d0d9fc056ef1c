-- Overdue rows have no time, because the process that sent them waits for their reports; it is no more. They are due.
-- $1 relay
update :"schema".parked set next_attempt_at = clock_timestamp()
where relay = $1::text and state = 'requesting' and next_attempt_at is null
