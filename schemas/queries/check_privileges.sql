-- What the relay needs and the current user lacks. One JSON object for each table, none when all is granted.
select row_to_json(t)
  from (select n.name as "table", string_agg(p.privilege, ', ' order by p.place) as lacking
          from (values ('message', array['SELECT']),
                       ('batch', array['SELECT', 'INSERT']),
                       ('settlement', array['SELECT', 'INSERT']),
                       ('settlement_topic', array['SELECT', 'INSERT']),
                       ('parked', array['SELECT', 'INSERT', 'UPDATE', 'DELETE']),
                       ('relay', array['SELECT', 'INSERT', 'UPDATE'])) as n (name, privileges)
          join pg_class c on c.relname = n.name and c.relnamespace = to_regnamespace(quote_ident(:'schema'))
         cross join unnest(n.privileges) with ordinality as p (privilege, place)
         where not has_table_privilege(c.oid, p.privilege)
            or not has_schema_privilege(c.relnamespace, 'USAGE')
         group by n.name
         order by n.name) t;
