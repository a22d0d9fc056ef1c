-- The topics that the outbox has seen. One JSON object a row.
select row_to_json(t) from (select topic from :"schema".lag order by topic) t;
