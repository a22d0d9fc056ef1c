-- For the script that init --print makes: is the schema missing?
select not exists (select from pg_namespace where nspname = :'schema') as missing
