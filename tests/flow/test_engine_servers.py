"""Other servers than a plain primary: standbys, PgBouncer in transaction mode, and another major version."""

import subprocess

import pytest

from lib.bouncer import Bouncer, as_owner, new_folder
from lib.postgres import Postgres
from lib.wait import wait_until
from load import Load, insert, wait_dispatched, wait_settled
from verify import verify

IN_RECOVERY = "this server is a standby in recovery"


@pytest.fixture
def topics(kafka):
    return [kafka.create_topic(partitions=4), kafka.create_topic()]


@pytest.fixture
def primary(own_postgres):
    return own_postgres()


@pytest.fixture
def standby(primary, folders):
    """A streaming standby of primary."""
    folder = new_folder(folders, "standby", primary.datadir)
    backup = as_owner(primary.datadir, f"{primary.bindir}/pg_basebackup", "-D", folder / "data", "-R", "-c", "fast",
                      "-d", primary.conninfo())
    done = subprocess.run(backup, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    server = Postgres(folder, settings=primary.settings)
    yield server
    server.stop("immediate")


@pytest.fixture
def outbox(primary, new_database, initialise):
    return initialise(new_database(primary))


def wait_replayed(primary, standby):
    with primary.connect() as source, standby.connect() as replica:
        (lsn,) = source.execute("select pg_current_wal_flush_lsn()").fetchone()
        wait_until(lambda: replica.execute("select pg_last_wal_replay_lsn() >= %s", (lsn,)).fetchone()[0], 30, "the replay")


@pytest.fixture
def bouncer(folders, request):
    """Starts PgBouncers: bouncer(database)."""
    running = []

    def start(database):
        running.append(Bouncer(new_folder(folders, "pgbouncer", database.server.datadir), database.name, database.server))
        return running[-1]

    yield start
    for one in running:
        one.close()


def assert_exactly_once(outbox, kafka, topics):
    verdict = verify(outbox, kafka, topics)
    print(verdict)
    assert verdict.exactly_once(), verdict


# --- standbys ---


def test_a_standby_is_refused_with_the_reason_until_it_is_promoted(primary, standby, outbox, kafka, topics, relay):
    insert(outbox, topics[0], 10)
    wait_replayed(primary, standby)
    running = relay(standby.conninfo(outbox.name))
    assert "read-only" in running.wait_log("database trouble, trying again")
    assert running.running and "leading" not in running.log_text()
    primary.stop("immediate")
    with standby.connect(outbox.name) as connection:
        assert connection.execute("select count(*) from outbox.batch").fetchone() == (0,)
        connection.execute("select pg_promote()")
        running.wait_log("leading", 60)
        wait_until(lambda: connection.execute("select sum(count) from outbox.settlement_topic").fetchone()[0] == 10, 30,
                   "the receipts")
    assert len(kafka.read_all(topics[0])) == 10


def test_where_any_server_is_allowed_a_standby_cannot_be_led_on(primary, standby, outbox, kafka, topics, relay):
    """Hosts in order, as after a failover that left only a replica: it says so, and goes on when the primary is back."""
    hosts = f"host=127.0.0.1,127.0.0.1 port={primary.port},{standby.port} user=postgres dbname={outbox.name}"
    running = relay(f"{hosts} target_session_attrs=any", "--lease-ms", 3_600_000)
    insert(outbox, topics[0], 10)
    wait_settled(outbox)
    primary.stop("fast")
    running.wait_log("read-only transaction")
    primary.start()
    running.wait_log("database is back")
    insert(outbox, topics[0], 10)
    wait_settled(outbox)
    assert_exactly_once(outbox, kafka, topics)


def test_the_cursor_does_not_move_on_a_server_in_recovery(primary, standby, outbox, kafka, topics, relay, bouncer):
    """
    A pooler turns to a standby and back, unseen. A standby's snapshot does not name who is running: to a cursor that
    moved there, an open transaction would seem to be over, and its rows would never be looked for.
    """
    pooler = bouncer(outbox)
    running = relay(pooler.conninfo(), "--no-prepare", "--lease-ms", 3_600_000, "--poll-idle-ms", 5)
    insert(outbox, topics[0], 10)
    wait_settled(outbox)
    with outbox.connect() as late:
        late.execute("begin")
        late.execute("insert into outbox.message (topic, key, payload) values (%s, 'late', 'v')", (topics[0],))
        for _ in range(20):
            outbox.value("select pg_current_xact_id()::text")
        wait_replayed(primary, standby)
        pooler.exchange(standby)
        running.wait_log(IN_RECOVERY)
        pooler.exchange(primary)
        running.wait_log("database is back")
        late.execute("commit")
    insert(outbox, topics[0], 10)
    wait_settled(outbox)
    assert_exactly_once(outbox, kafka, topics)


# --- PgBouncer ---


def test_case_25_transaction_pooling_works_and_keeps_no_session_state(schema_ready, kafka, topics, relay, bouncer):
    pooler = bouncer(schema_ready)
    running = relay(pooler.conninfo(), "--no-prepare", "--lease-ms", 60_000)
    with Load(schema_ready, topics):
        wait_dispatched(schema_ready, 2000)
    wait_settled(schema_ready)
    assert "trouble" not in running.log_text()
    assert schema_ready.value("select count(*) from pg_locks where locktype = 'advisory'") == 0
    running.kill()
    schema_ready.execute("update outbox.relay set lease_expires_at = now()")
    relay(pooler.conninfo(), "--no-prepare").wait_log("leading")
    insert(schema_ready, topics[0], 10)
    wait_settled(schema_ready)
    assert_exactly_once(schema_ready, kafka, topics)


def test_behind_a_pooler_prepared_statements_are_given_up_by_itself(schema_ready, kafka, topics, relay, bouncer):
    running = relay(bouncer(schema_ready).conninfo())
    with Load(schema_ready, topics):
        wait_dispatched(schema_ready, 1000)
        running.wait_log("going on without prepared statements")
        wait_dispatched(schema_ready, 1000)
    wait_settled(schema_ready)
    assert running.log_text().count("database trouble") <= 3, "once for each of its connections"
    assert running.stop() == 0
    assert_exactly_once(schema_ready, kafka, topics)


# --- another major version ---


def test_the_engine_runs_on_postgresql_17(postgres17, new_database, initialise, kafka, topics, relay):
    outbox = initialise(new_database(postgres17))
    running = relay(outbox)
    with Load(outbox, topics):
        wait_dispatched(outbox, 1000)
        running.kill()
        outbox.execute("update outbox.relay set lease_expires_at = now()")
        running = relay(outbox)
        wait_dispatched(outbox, 1000)
    wait_settled(outbox)
    assert running.stop() == 0
    verdict = verify(outbox, kafka, topics)
    print(verdict)
    assert verdict.at_least_once(), verdict
