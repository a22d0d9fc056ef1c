"""What could stop a relay or keep it from stopping: locks, lost connections at bad moments, dates without end."""

import os
import signal
import time
from pathlib import Path

from lib.wait import wait_until
from load import Load, dispatched, insert, wait_dispatched, wait_settled
from verify import verify

CLAIMED = ("select coalesce(sum(row_count), 0) from outbox.batch"
           " where id > (select coalesce(max(id), 0) from outbox.settlement)")
PARKED = "select state, count(*)::int from outbox.parked group by 1"


def cpu_seconds(pid):
    """User and system time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_relay_without_database_does_not_spin(own_postgres, new_database, initialise, kafka, relay):
    server = own_postgres()
    database = initialise(new_database(server))
    running = relay(database)
    running.wait_log("leading")
    insert(database, kafka.create_topic(), 10)
    wait_settled(database)
    server.stop()
    running.wait_log("database trouble")
    used, since = cpu_seconds(running.pid), time.monotonic()
    for _ in range(5):  # each stop and start takes seconds of this test, and should take none of the relay's
        server.start()
        server.stop("immediate")
    share = (cpu_seconds(running.pid) - used) / (time.monotonic() - since)
    assert share < 0.15, f"{share:.0%} of a processor while there is no database"
    server.start()
    running.wait_log("database is back", after=len(running.lines) - 1)
    wait_settled(database)


def test_sigterm_ends_a_relay_that_waits_for_the_ledger(schema_ready, kafka, relay):
    with schema_ready.connect() as other:
        other.execute("begin; lock table outbox.batch in access exclusive mode")
        running = relay(schema_ready, "--shutdown-flush-ms", 500)
        running.wait_log("leading")
        assert running.stop() == 0


def test_case_10_sigterm_claims_nothing_more_however_much_is_waiting(schema_ready, kafka, relay):
    topic, rows = kafka.create_topic(partitions=4), 300_000
    insert(schema_ready, topic, rows)
    running = relay(schema_ready, "--batch-rows", 500, "--inflight-messages", 1_000_000)
    wait_dispatched(schema_ready, 1)
    running.signal(signal.SIGTERM)
    running.wait_log("stopping")
    newest = schema_ready.value("select max(id) from outbox.batch")
    assert running.wait() == 0
    assert "no acknowledgment" not in running.log_text()
    assert schema_ready.value("select max(id) from outbox.batch") <= newest + 4
    assert schema_ready.value("select max(id) from outbox.batch") == schema_ready.value(
        "select max(id) from outbox.settlement")
    assert dispatched(schema_ready) < rows


def test_holds_survive_a_connection_lost_while_they_are_loaded(schema_ready, kafka, relay):
    topic = "absent-until-later"
    with relay(schema_ready) as first:
        insert(schema_ready, topic, 5)
        wait_until(lambda: dict(schema_ready.rows(PARKED)) == {"failed": 1, "held": 4}, 30, "a failed row and its held ones")
        assert first.stop() == 0
    with schema_ready.connect() as other:
        other.execute("begin; lock table outbox.parked in access exclusive mode")
        second = relay(schema_ready)
        second.wait_log("leading")
        blocked = ("select pid from pg_stat_activity where datname = current_database() and application_name = 'denpyo claim'"
                   " and wait_event_type = 'Lock'")
        (pid,) = wait_until(lambda: next(iter(schema_ready.rows(blocked)), None), 30, "the relay at the lock")
        other.execute("select pg_terminate_backend(%s)", (pid,))
        second.wait_log("database trouble")
        other.execute("rollback")
        second.wait_log("database is back")
    kafka.create_topic(topic, partitions=2)
    wait_settled(schema_ready)
    verdict = verify(schema_ready, kafka, [topic])
    assert verdict.exactly_once() and verdict.committed == 5, verdict


def test_rows_that_are_never_due_wait_and_stop_nobody(schema_ready, kafka, relay):
    topic = kafka.create_topic()
    schema_ready.execute(
        "insert into outbox.message (topic, payload, available_at) select %s, 'later', t::timestamptz"
        " from unnest(array['infinity', '294276-12-31', '2999-01-01 00:00:00.123456+00']) t", (topic,))
    running = relay(schema_ready)
    wait_until(lambda: dict(schema_ready.rows(PARKED)).get("delayed") == 3, 30, "three delayed rows")
    assert schema_ready.rows("select count(*)::int, min(p.next_attempt_at) = min(m.available_at),"
                             " max(p.next_attempt_at) = max(m.available_at)"
                             " from outbox.parked p join outbox.message m using (id) where state = 'delayed'") == [(3, True, True)]
    insert(schema_ready, topic, 3)
    wait_until(lambda: dispatched(schema_ready) == 3, 30, "the others' receipts")
    assert "trouble" not in running.log_text()


def test_order_per_key_holds_when_what_was_given_up_is_sent_after_a_restart(schema_ready, own_kafka, relay):
    """More rows are unknown than one batch takes, and newer rows of their keys keep coming."""
    broker = own_kafka()
    topic = broker.create_topic(partitions=2)
    flags = ["--batch-rows", 50, "--inflight-messages", 2000, "--shutdown-flush-ms", 300]
    first = relay(schema_ready, *flags, brokers=broker.bootstrap)
    with Load(schema_ready, [topic]):
        wait_dispatched(schema_ready, 100)
        broker.freeze()
        wait_until(lambda: schema_ready.value(CLAIMED) >= 1500, 60, "1500 open rows")
        assert first.stop() == 0
        assert dict(schema_ready.rows(PARKED))["requesting"] >= 1000
        broker.thaw()
        relay(schema_ready, *flags, brokers=broker.bootstrap)
        wait_until(lambda: "requesting" not in dict(schema_ready.rows(PARKED)), 60, "the end of the unknown")
    wait_settled(schema_ready)
    verdict = verify(schema_ready, broker, [topic])
    assert verdict.at_least_once(), verdict
