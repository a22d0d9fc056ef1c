-- What keeps the current user from seeing all and writing what a relay must. A row each: what is lacking, the statement that gives it, and
-- whether rows are hidden (else a privilege is missing); no row when nothing is. Who has a privilege on every single column has it.
-- A relay reaches partitions and children through the table named here, by whose rights and policies alone they are judged.
with needed (name, privileges) as (
    values ('message', array['SELECT']),
           ('batch', array['SELECT', 'INSERT']),
           ('settlement', array['SELECT', 'INSERT']),
           ('settlement_topic', array['SELECT', 'INSERT']),
           ('parked', array['SELECT', 'INSERT', 'UPDATE', 'DELETE']),
           ('parked_range', array['SELECT', 'INSERT', 'UPDATE', 'DELETE']),
           ('relay', array['SELECT', 'INSERT', 'UPDATE'])
), found as (
    select n.name, n.privileges, c.*, c.oid as table_oid, format('"%s"."%s"', n_space.nspname, n.name) as full_name
      from needed n
      join pg_class c on c.relname = n.name
      join pg_namespace n_space on n_space.oid = c.relnamespace and n_space.nspname = :'schema'
), lacking as (
    select f.name, f.full_name, string_agg(p.privilege, ', ' order by p.place) as privileges
      from found f
     cross join unnest(f.privileges) with ordinality as p (privilege, place)
     where not has_schema_privilege(f.relnamespace, 'USAGE')
        or not has_table_privilege(f.table_oid, p.privilege)
           and (p.privilege = 'DELETE'
                or exists (select from pg_attribute a
                            where a.attrelid = f.table_oid and a.attnum > 0 and not a.attisdropped
                              and not has_column_privilege(f.table_oid, a.attnum, p.privilege)))
     group by f.name, f.full_name
), granted as (
    select exists (select from pg_roles r where r.rolname = :'relay' and pg_has_role(r.oid, 'USAGE')) as is_member
)
select lacking, remedy, is_hidden from (
select l.name, format('%s on %s', l.privileges, l.name) as lacking,
       case when g.is_member then format('grant %s on %s to "%s"', l.privileges, l.full_name, :'relay')
            else format('grant "%s" to "%s"', :'relay', current_user) end as remedy,
       false as is_hidden
  from lacking l cross join granted g
union all
select f.name, f.name, format('alter table %s disable row level security', f.full_name), true
  from found f
 where row_security_active(f.table_oid)
union all
-- The outbox's own functions and views run as the owner.
select f.name, f.name, format('alter table %s no force row level security', f.full_name), true
  from found f join pg_roles owner on owner.oid = f.relowner
 where f.relrowsecurity and f.relforcerowsecurity and not owner.rolsuper and not owner.rolbypassrls
   and not row_security_active(f.table_oid)
) found
 order by is_hidden, name
