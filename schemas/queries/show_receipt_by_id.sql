-- The receipt of a message ($1: its number) whose row was pruned. One JSON object, or none.
select row_to_json(r) from :"schema".receipt_of($1::bigint) r;
