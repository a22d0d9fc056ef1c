-- 0002: publish(): one call for one message, for those who do not want to write the INSERT.

-- The whole interface, payload as text; the other three hand over to it. Returns the message id; with a dedup_key that is
-- there already (for that topic) nothing is inserted and the first message's id is returned. It runs with its owner's
-- rights, since a writer may not read what is in the table. A null payload is refused unless tombstone is true. With named
-- arguments key can be left out, and payload beside tombstone or payload_bytes, which only this function has; PostgreSQL
-- cannot tell the four apart when neither a payload nor one of these is given, and refuses the call.
create function :"schema".publish(
    topic         text,
    key           text default null,
    payload       text default null,
    headers       jsonb default null,
    partition     int default null,
    available_at  timestamptz default null,
    dedup_key     text default null,
    message_id    uuid default null,
    key_bytes     bytea default null,
    payload_bytes bytea default null,
    tombstone     boolean default false
) returns uuid language plpgsql volatile security definer set search_path = :"schema", pg_temp as $$
#variable_conflict use_column
declare
    published uuid;
begin
    loop
        insert into message as m
            (message_id, topic, key, key_bytes, partition, payload, payload_bytes, tombstone, headers, available_at, dedup_key)
        values
            (coalesce(publish.message_id, new_message_id()), publish.topic, publish.key, publish.key_bytes,
             publish.partition, publish.payload, publish.payload_bytes, publish.tombstone, publish.headers,
             publish.available_at, publish.dedup_key)
        on conflict (topic, dedup_key) where dedup_key is not null do nothing
        returning m.message_id into published;
        if published is null then -- a twin; should it be deleted in between, the next turn inserts
            select m.message_id into published
              from message m where m.topic = publish.topic and m.dedup_key = publish.dedup_key;
        end if;
        if published is not null then
            return published;
        end if;
    end loop;
end
$$;

create function :"schema".publish(
    topic        text,
    key          text default null,
    payload      json default null,
    headers      jsonb default null,
    partition    int default null,
    available_at timestamptz default null,
    dedup_key    text default null,
    message_id   uuid default null,
    key_bytes    bytea default null
) returns uuid language sql volatile security definer set search_path = :"schema", pg_temp as $$
    select publish(topic, key, payload::text, headers, partition, available_at, dedup_key, message_id, key_bytes)
$$;

create function :"schema".publish(
    topic        text,
    key          text default null,
    payload      jsonb default null,
    headers      jsonb default null,
    partition    int default null,
    available_at timestamptz default null,
    dedup_key    text default null,
    message_id   uuid default null,
    key_bytes    bytea default null
) returns uuid language sql volatile security definer set search_path = :"schema", pg_temp as $$
    select publish(topic, key, payload::text, headers, partition, available_at, dedup_key, message_id, key_bytes)
$$;

create function :"schema".publish(
    topic        text,
    key          text default null,
    payload      bytea default null,
    headers      jsonb default null,
    partition    int default null,
    available_at timestamptz default null,
    dedup_key    text default null,
    message_id   uuid default null,
    key_bytes    bytea default null
) returns uuid language sql volatile security definer set search_path = :"schema", pg_temp as $$
    select publish(topic, key, null::text, headers, partition, available_at, dedup_key, message_id, key_bytes, payload)
$$;

revoke all on all functions in schema :"schema" from public;

insert into :"schema".denpyo_migration (version, name) values (2, '0002_publish');
