-- Is this outbox relayed under another name already? Each name would send all of it. No row: no, or this name has its place.
-- $1 relay
select r.name
from :"schema".leader r
where r.name <> $1::text and not exists (select 1 from :"schema".leader own where own.name = $1::text)
order by r.name
limit 1
