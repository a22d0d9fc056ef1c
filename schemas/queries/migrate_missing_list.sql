-- For the script that init --print makes: is the list of migrations missing?
select not exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                    where n.nspname = :'schema' and c.relname = 'denpyo_migration') as missing
