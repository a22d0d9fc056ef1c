-- Tries the message with this message id ($1) again, now. One row: the state it was in.
select :"schema".retry($1::uuid)
