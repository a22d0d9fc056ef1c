-- 0001: the application's table and the relay's ledger.

-- What the application writes, in its own transaction; nobody ever updates it. id, xid and created_at are not
-- for writers to choose: xid is how the relay tells what committed between two snapshots.
create table :"schema".message (
    id            bigint generated always as identity (cache 1) primary key,
    xid           xid8 not null default pg_current_xact_id(),
    message_id    uuid not null unique,
    topic         text not null,
    key           text,
    key_bytes     bytea,
    partition     int,
    payload       text,
    payload_bytes bytea,
    tombstone     boolean not null default false,
    headers       jsonb,
    available_at  timestamptz,
    dedup_key     text,
    created_at    timestamptz not null default clock_timestamp(),
    constraint message_topic_is_a_kafka_name
        check (octet_length(topic) between 1 and 249 and topic !~ '[^a-zA-Z0-9._-]' and topic not in ('.', '..')),
    constraint message_has_one_key_at_most
        check (key is null or key_bytes is null),
    constraint message_has_one_of_payload_payload_bytes_tombstone
        check (num_nonnulls(payload, payload_bytes) + tombstone::int = 1),
    constraint message_partition_is_not_negative
        check (partition >= 0),
    -- strict: a lax path would look inside arrays and find strings there.
    constraint message_headers_are_an_object_of_strings_or_nulls
        check (jsonb_typeof(headers) = 'object'
               and not headers @? 'strict $.* ? (@.type() != "string" && @.type() != "null")'),
    constraint message_headers_have_no_empty_name_and_no_id
        check (not headers ?| array['', 'id'])
);
create index message_xid_id on :"schema".message (xid, id);
create unique index message_dedup on :"schema".message (topic, dedup_key) where dedup_key is not null;

-- Leadership: one row per relay name. (name, epoch) is unique so that a takeover is a key update, which
-- waits for whoever holds FOR KEY SHARE on the row; a renewal is not, and passes beside it.
create table :"schema".relay (
    name              text primary key,
    epoch             bigint not null default 0,
    holder            uuid,
    holder_info       text,
    lease_expires_at  timestamptz not null default '-infinity',
    heartbeat_at      timestamptz,
    acquired_at       timestamptz,
    system_identifier bigint,
    timeline          int,
    floor_id          bigint not null default 0,
    cluster_id        text,
    version           text,
    unique (name, epoch)
);

-- A claim, committed before the first produce: one page of a window, or (parked_ids not null) a set of parked rows
-- that are tried again, whose window columns repeat the cursor. The newest batch is the cursor. The reference keeps
-- a relay's row, through which the cursor is found, from being deleted; the fence has locked that row already.
create table :"schema".batch (
    relay            text not null references :"schema".relay (name),
    id               bigint not null,
    epoch            bigint not null,
    window_from      pg_snapshot not null,
    window_to        pg_snapshot not null,
    after_id         bigint not null,
    upto_id          bigint not null,
    row_count        int not null,
    last_page        boolean not null,
    parked_ids       bigint[],
    cluster_id       text,
    topic_names      text[] not null,
    partition_counts int[] not null,
    claimed_at       timestamptz not null default clock_timestamp(),
    primary key (relay, id)
);

-- The receipt of a batch, inserted once when it closes. Batches close in order: open are those above the newest settlement.
-- topics[i] is a 1-based index into topic_names. Rows of the batch that are not in its arrays are in parked or in parked_range.
create table :"schema".settlement (
    relay       text not null,
    id          bigint not null,
    settled_at  timestamptz not null default clock_timestamp(),
    topic_names text[] not null,
    ids         bigint[] not null,
    message_ids uuid[] not null,
    topics      smallint[] not null,
    partitions  int[] not null,
    offsets     bigint[] not null,
    min_id      bigint,
    max_id      bigint,
    primary key (relay, id)
);
-- Which settlement holds a message? A batch of which nothing was dispatched has no range (a null bound would mean: all).
create index settlement_range on :"schema".settlement using gist (int8range(min_id, max_id, '[]'))
    where min_id is not null;

-- How many of each topic a settlement holds: for lag and the monthly audit, without opening the arrays.
create table :"schema".settlement_topic (
    relay      text not null,
    batch_id   bigint not null,
    topic      text not null,
    count      int not null,
    settled_at timestamptz not null default clock_timestamp(),
    primary key (relay, batch_id, topic)
);
create index settlement_topic_by_month on :"schema".settlement_topic (topic, settled_at);

-- All that is off the straight way. A dispatched row leaves this table when its settlement is written.
create table :"schema".parked (
    id              bigint primary key,
    relay           text not null,
    message_id      uuid not null unique,
    topic           text not null,
    state           text not null check (state in ('delayed', 'held', 'failed', 'requesting', 'rejected', 'skipped')),
    scope           text not null default 'key' check (scope in ('key', 'topic')),
    attempts        int not null default 0,
    next_attempt_at timestamptz,
    waits_for_id    bigint,
    error_code      text,
    error           text,
    first_error_at  timestamptz,
    last_error_at   timestamptz,
    parked_at       timestamptz not null default clock_timestamp(),
    claimed_at      timestamptz
);
create index parked_due on :"schema".parked (relay, next_attempt_at, id) where state in ('failed', 'delayed', 'requesting', 'skipped');
create index parked_held on :"schema".parked (waits_for_id, id) where state = 'held';

-- For a relay that finds its outbox in another cluster: waits until nobody has messages that are not committed, keeps everybody from
-- inserting until the caller's transaction ends, and returns the highest id. By itself the relay may not lock the table. It gives up soon:
-- behind a lock that is waited for, inserts queue.
create function :"schema".quiesce() returns bigint
language plpgsql volatile security definer set search_path = :"schema", pg_temp set lock_timeout = '2s' as $$
begin
    lock table message in share row exclusive mode;
    return (select coalesce(max(m.id), 0) from message m);
end
$$;
revoke all on function :"schema".quiesce() from public;

-- What depends on the server. A body in dollar quotes cannot carry the schema's name, so a setting tells it.
select set_config('denpyo.schema', :'schema', false);

-- The default message_id is time-ordered (version 7): uuidv7() where there is one, else a random uuid whose first 48 bits
-- are the milliseconds and whose version, 4, gets its two lower bits set. The column's default is the expression
-- itself, so that it costs writers neither a right nor a call; new_message_id() is for publish() and for applications
-- that want to know the id beforehand.
do $$
declare
    schema text := current_setting('denpyo.schema');
    uuid7  text := 'encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) placing '
        'substring(int8send(floor(date_part(''epoch'', clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6), '
        '52, 1), 53, 1), ''hex'')::uuid';
begin
    if to_regprocedure('pg_catalog.uuidv7()') is not null then
        uuid7 := 'pg_catalog.uuidv7()';
    end if;
    execute format('alter table %I.message alter message_id set default %s', schema, uuid7);
    execute format('create function %I.new_message_id() returns uuid language sql volatile as %L',
                   schema, 'select ' || uuid7);
    execute format('revoke all on function %I.new_message_id() from public', schema);
end
$$;

-- The receipts' arrays are compressed with lz4; servers before 14, or built without it, keep pglz.
do $$
declare
    column_name text;
begin
    if current_setting('server_version_num')::int >= 140000 then
        foreach column_name in array array['ids', 'message_ids', 'topics', 'partitions', 'offsets'] loop
            execute format('alter table %I.settlement alter %I set compression lz4',
                           current_setting('denpyo.schema'), column_name);
        end loop;
    end if;
exception
    when feature_not_supported then
        null;
end
$$;
reset denpyo.schema;

insert into :"schema".denpyo_migration (version, name) values (1, '0001_outbox');
