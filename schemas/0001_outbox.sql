-- 0001: the outbox: the application's table and the relay's ledger.

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
    created_at    timestamptz not null default clock_timestamp()
);
create index message_xid_id on :"schema".message (xid, id);

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
-- that are tried again, whose window columns repeat the cursor. The newest batch is the cursor.
create table :"schema".batch (
    relay            text not null,
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
-- topics[i] is a 1-based index into topic_names. Rows of the batch that are in neither array are in parked.
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
    message_id      uuid not null,
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
create index parked_due on :"schema".parked (relay, next_attempt_at, id) where state in ('failed', 'delayed');
create index parked_held on :"schema".parked (waits_for_id, id) where state = 'held';
