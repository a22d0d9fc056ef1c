-- Where the message with this number ($1) is. One JSON object, or none.
select row_to_json(s) from :"schema".status s where s.id = $1::bigint;
