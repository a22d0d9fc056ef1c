-- The three roles and what each may do. Runs with every init: roles that are there are left as they are, grants are repeated.
select set_config('denpyo.roles', array[:'writer', :'relay', :'reader']::text, false);
do $$
declare
    role_name text;
begin
    foreach role_name in array current_setting('denpyo.roles')::text[] loop
        if not exists (select from pg_roles where rolname = role_name) then
            begin
                execute format('create role %I nologin', role_name);
            exception
                when duplicate_object or unique_violation then
                    null; -- made in another database of this server at the same moment
            end;
        end if;
    end loop;
end
$$;
reset denpyo.roles;

grant usage on schema :"schema" to :"writer", :"relay", :"reader";

-- Applications: insert what is theirs to say, know what they inserted. Never id, xid or created_at, never reading.
grant insert (message_id, topic, key, key_bytes, partition, payload, payload_bytes, tombstone, headers, available_at, dedup_key),
      select (id, message_id)
   on :"schema".message to :"writer";
grant execute on function
      :"schema".publish(text, text, text, jsonb, int, timestamptz, text, uuid, bytea, bytea, boolean),
      :"schema".publish(text, text, json, jsonb, int, timestamptz, text, uuid, bytea),
      :"schema".publish(text, text, jsonb, jsonb, int, timestamptz, text, uuid, bytea),
      :"schema".publish(text, text, bytea, jsonb, int, timestamptz, text, uuid, bytea),
      :"schema".new_message_id()
   to :"writer";

-- The relay: reads messages, adds to the ledger and never changes it; what it may change are the parked rows and the lease.
grant select on :"schema".message to :"relay";
grant select, insert on :"schema".batch, :"schema".settlement, :"schema".settlement_topic to :"relay";
grant select, insert, update, delete on :"schema".parked, :"schema".parked_range to :"relay";
grant select, insert, update on :"schema".relay to :"relay";
grant execute on function :"schema".quiesce() to :"relay";

-- Operators decide as the relay's role, or as any role that is granted these.
grant execute on function :"schema".retry(uuid), :"schema".skip(uuid, text) to :"relay";

-- People and dashboards: the views, which show no payload. The relay may read them too.
grant select
   on :"schema".status, :"schema".lag, :"schema".backlog, :"schema".stuck, :"schema".receipt,
      :"schema".dispatched_by_month, :"schema".leader, :"schema".denpyo_migration
   to :"reader", :"relay";
grant execute on function :"schema".receipt_of(bigint), :"schema".receipt_of(uuid), :"schema".receipt_at(text, int, bigint) to :"reader", :"relay";
