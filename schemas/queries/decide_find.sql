-- The message id of the message with this number ($1). One row, or none.
select s.message_id from :"schema".status s where s.id = $1::bigint
