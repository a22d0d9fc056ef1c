-- The relay's row, once. $1 relay
insert into :"schema".relay (name) values ($1::text) on conflict (name) do nothing
