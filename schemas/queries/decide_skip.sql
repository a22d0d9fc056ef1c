-- Closes the message with this message id ($1) for good, for a reason ($2). One row: the state it was in.
select :"schema".skip($1::uuid, $2::text)
