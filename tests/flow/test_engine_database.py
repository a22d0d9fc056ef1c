"""The database restarts, crashes, cuts connections and times statements out: the relay goes on where it stood."""

import threading

import pytest

from lib.wait import wait_until
from load import Load, dispatched, insert, wait_dispatched, wait_settled
from verify import verify

CONNECTIONS = ("lease", "claim", "settle")
WALK_OFF = {"wal_writer_delay": "10s", "autovacuum": "off", "checkpoint_timeout": "1h"}


@pytest.fixture
def server(own_postgres):
    return own_postgres()


@pytest.fixture
def outbox(server, new_database, initialise):
    """A database on a server of this test's own."""
    return initialise(new_database(server))


@pytest.fixture
def topics(kafka):
    return [kafka.create_topic(partitions=4), kafka.create_topic()]


def all_arrived_once(outbox, kafka, topics):
    wait_settled(outbox)
    verdict = verify(outbox, kafka, topics)
    print(verdict)
    assert verdict.exactly_once(), verdict


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_case_03_the_relay_outlives_restarts_under_load(server, outbox, kafka, topics, relay, mode):
    """Half of the writers commit asynchronously: what a crash takes back must not have been sent."""
    running = relay(outbox)
    with Load(outbox, topics, writers=2, patient=True), Load(outbox, topics, writers=2, patient=True, relaxed=True):
        for _ in range(3):
            wait_dispatched(outbox, 500)
            seen = len(running.lines)
            server.stop(mode)
            running.wait_log("database trouble, trying again", after=seen)
            server.start()
            running.wait_log("database is back", after=seen)
        wait_dispatched(outbox, 500)
    all_arrived_once(outbox, kafka, topics)
    assert running.stop() == 0
    assert all(line.startswith("20") for line in running.lines), "what libpq has to say is printed past the log"


def test_case_03_a_smart_shutdown_is_waited_for_at_work(server, outbox, kafka, topics, relay):
    """New connections are refused by then; those of the relay go on with what is committed until they are cut."""
    running = relay(outbox)
    with outbox.connect() as writer:
        wait_until(lambda: len(backends(outbox)) == 3, 20, "the relay's connections")
        stopping = threading.Thread(target=server.stop, args=("smart",))
        stopping.start()
        wait_until(lambda: "received smart shutdown request" in server.log_text(), 20, "the request")
        writer.execute("insert into outbox.message (topic, key, payload) select %s, 'k', 'v' from generate_series(1, 100)",
                       (topics[0],))
        wait_until(lambda: writer.execute("select sum(count) from outbox.settlement_topic").fetchone()[0] == 100, 30,
                   "receipts during the shutdown")
    server.stop("fast")
    stopping.join(60)
    running.wait_log("database trouble, trying again")
    server.start()
    insert(outbox, topics[0], 100)
    all_arrived_once(outbox, kafka, topics)


def backends(outbox):
    return outbox.rows("select application_name from pg_stat_activity where application_name like 'denpyo %'")


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_case_03_a_cut_connection_is_made_anew(schema_ready, kafka, topics, relay, connection):
    cut = ("select count(pg_terminate_backend(pid)) from pg_stat_activity"
           " where datname = current_database() and application_name = %s")
    running = relay(schema_ready)
    with Load(schema_ready, topics):
        for _ in range(4):
            wait_dispatched(schema_ready, 200)
            seen = len(running.lines)
            wait_until(lambda: schema_ready.value(cut, (f"denpyo {connection}",)), 20, "a connection to cut")
            running.wait_log("database trouble, trying again", after=seen)
            running.wait_log("database is back", after=seen)
        wait_dispatched(schema_ready, 200)
    all_arrived_once(schema_ready, kafka, topics)
    assert schema_ready.value("select max(epoch) from outbox.relay") == 1, "the lease was kept"


def test_time_outs_that_a_role_has_do_not_interrupt_claims(schema_ready, kafka, topics, relay):
    """A claim waits for a lock for longer than the role's statement_timeout: its own limit counts."""
    role = f"relay_{schema_ready.name}"
    schema_ready.execute(f"create role {role} login in role outbox_relay")
    try:
        for setting, value in (("statement_timeout", "700ms"), ("idle_in_transaction_session_timeout", "20ms"),
                               ("lock_timeout", "0"), ("synchronous_commit", "off")):
            schema_ready.execute(f"alter role {role} set {setting} = '{value}'")
        running = relay(schema_ready.server.conninfo(schema_ready.name, user=role))
        running.wait_log("leading")
        with schema_ready.connect() as blocker:
            blocker.execute("begin; lock table outbox.batch in share mode")
            insert(schema_ready, topics[0], 10)
            waits = ("select count(*) from pg_stat_activity where application_name = 'denpyo claim' and usename = %s"
                     " and wait_event_type = 'Lock' and now() - query_start > interval '1500 ms'")
            wait_until(lambda: schema_ready.value(waits, (role,)), 30, "a claim that has waited for 1.5 s")
            blocker.execute("commit")
        with Load(schema_ready, topics):
            wait_dispatched(schema_ready, 1000)
        all_arrived_once(schema_ready, kafka, topics)
        assert "trouble" not in running.log_text()
        running.stop()
    finally:
        schema_ready.execute(f"drop role {role}")


def test_the_cursor_is_read_again_after_a_crash_because_transaction_ids_come_again(
        own_postgres, new_database, initialise, kafka, topics, relay):
    """
    An idle relay's cursor in memory runs ahead over transactions that wrote no message. A crash takes them back, and
    the ids that they had are handed out again, to rows that a cursor from before the crash would pass over.
    """
    server = own_postgres(settings=WALK_OFF)
    outbox = initialise(new_database(server))
    running = relay(outbox, "--lease-ms", 3_600_000, "--poll-idle-ms", 5)
    for attempt in range(1, 6):
        insert(outbox, topics[0], 10)
        wait_settled(outbox)
        burnt = burn_and_crash(outbox, server)
        wait_until(lambda: running.log_text().count("database trouble, trying again") >= attempt, 30, "the loss of the database")
        server.start()
        rows = insert(outbox, topics[0], 10)
        reused = outbox.value("select max(xid)::text::bigint from outbox.message where id = any (%s)", (rows,))
        all_arrived_once(outbox, kafka, topics)
        assert dispatched(outbox) == 20 * attempt
        wait_until(lambda: running.log_text().count("database is back") >= attempt, 30, "the database's return")
        if reused < burnt:
            return
    raise AssertionError("no transaction id came again: every crash came too late to take something back")


def burn_and_crash(outbox, server):
    """Hands out transaction ids that the relay's polls see, and takes them back by a crash, if that comes before the WAL writer."""
    with outbox.connect() as connection:
        connection.execute("checkpoint")
        connection.execute("set synchronous_commit = off")
        for _ in range(200):
            connection.execute("select pg_current_xact_id()")
        burnt, moment = connection.execute(
            "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint, clock_timestamp()").fetchone()
        polled = ("select count(*) from pg_stat_activity where application_name = 'denpyo claim'"
                  " and state = 'idle' and query_start > %s")
        wait_until(lambda: connection.execute(polled, (moment,)).fetchone()[0], 20, "a poll of what was burnt")
        server.stop("immediate")
    return burnt
