-- What is there under the schema's name: the schema, the list of migrations, how many other relations and functions.
select n.oid is not null as has_schema,
       exists (select from pg_class c where c.relnamespace = n.oid and c.relname = 'denpyo_migration') as has_migrations,
       (select count(*) from pg_class c where c.relnamespace = n.oid)
       + (select count(*) from pg_proc p where p.pronamespace = n.oid) as objects
  from (select) as always
  left join pg_namespace n on n.nspname = :'schema';
