-- Where the message with this message id ($1) is. One JSON object, or none.
select row_to_json(s) from :"schema".status s where s.message_id = $1::uuid;
