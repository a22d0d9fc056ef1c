-- The relay's row, once; not beside another name's: each would send all of the outbox. $1 relay
insert into :"schema".relay (name)
select $1::text where not exists (select 1 from :"schema".relay other where other.name <> $1::text)
on conflict (name) do nothing
