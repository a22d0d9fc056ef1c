"""The database changes under a running relay: tables are altered, locked and renamed, init runs again, the standby goes away."""

import time

import pytest

from lib.wait import wait_until
from load import Load, dispatched, insert, wait_dispatched, wait_settled
from test_engine_servers import primary, standby  # noqa: F401 (fixtures)
from verify import verify

TABLES = ("message", "batch", "settlement", "settlement_topic", "parked", "relay")
MAINTENANCE = (
    "alter table outbox.{} add column spare int",
    "analyze outbox.{}",
    "reindex table outbox.{}",
    "vacuum full outbox.{}",
    "alter table outbox.{} drop column spare",
)


@pytest.fixture
def topics(kafka):
    return [kafka.create_topic(partitions=4), kafka.create_topic()]


def assert_all_arrived_once(outbox, kafka, topics):
    wait_settled(outbox)
    verdict = verify(outbox, kafka, topics)
    print(verdict)
    assert verdict.exactly_once(), verdict


def test_maintenance_under_load_is_no_trouble(schema_ready, initialise, kafka, topics, relay):
    """What was prepared against the tables as they were goes on with the tables as they are."""
    running = relay(schema_ready)
    with Load(schema_ready, topics):
        wait_dispatched(schema_ready, 200)
        for table in TABLES:
            for statement in MAINTENANCE:
                schema_ready.execute(statement.format(table))
                wait_dispatched(schema_ready, 20)
        initialise(schema_ready)
        wait_dispatched(schema_ready, 200)
    assert_all_arrived_once(schema_ready, kafka, topics)
    assert "trouble" not in running.log_text()
    assert running.stop() == 0


@pytest.mark.parametrize("table", ["message", "settlement", "relay"])
def test_a_table_that_stays_locked_is_told_of_and_waited_for(schema_ready, kafka, topics, relay, table):
    """As long as somebody's ALTER TABLE waits or works; afterwards it goes on by itself, and nothing was sent twice."""
    running = relay(schema_ready, "--lease-ms", 1500)
    insert(schema_ready, topics[0], 10)
    wait_settled(schema_ready)
    with schema_ready.connect() as migration:
        migration.execute("begin")
        if table != "message":
            insert(schema_ready, topics[0], 10)
        migration.execute(f"lock table outbox.{table} in access exclusive mode")
        line = running.wait_log("database trouble, trying again", 60)
        assert "statement timeout" in line or "no answer for longer than the lease" in line
        migration.execute("commit")
    insert(schema_ready, topics[1], 10)
    running.wait_log("database is back")
    assert_all_arrived_once(schema_ready, kafka, topics)
    assert running.stop() == 0


def test_a_lock_that_lasts_does_not_pile_up_connections(schema_ready, kafka, topics, relay):
    """A backend that waits for a lock does not notice that its client has gone: each attempt leaves another one, ever later."""
    relay(schema_ready, "--lease-ms", 1000).wait_log("leading")
    waiting = "select count(*) from pg_stat_activity where application_name = 'denpyo lease' and wait_event_type = 'Lock'"
    with schema_ready.connect() as migration:
        migration.execute("begin; lock table outbox.relay in access exclusive mode")
        moments = []
        for count in (3, 4):
            wait_until(lambda count=count: schema_ready.value(waiting) >= count, 60, f"{count} backends that wait")
            moments.append(time.monotonic())
        assert moments[1] - moments[0] > 3, "the third attempt did not wait four leases"
        migration.execute("commit")
    insert(schema_ready, topics[0], 10)
    assert_all_arrived_once(schema_ready, kafka, topics)


def test_a_column_that_is_gone_is_named_and_waited_for(schema_ready, kafka, topics, relay):
    running = relay(schema_ready)
    insert(schema_ready, topics[0], 10)
    wait_settled(schema_ready)
    schema_ready.execute("alter table outbox.message rename column available_at to somewhat_later")
    insert(schema_ready, topics[0], 10)
    line = running.wait_log("database trouble, trying again")
    assert "available_at does not exist" in line
    assert "is not as denpyo init made it" in line
    schema_ready.execute("alter table outbox.message rename column somewhat_later to available_at")
    running.wait_log("database is back")
    insert(schema_ready, topics[0], 10)
    assert_all_arrived_once(schema_ready, kafka, topics)
    assert running.stop() == 0


def test_a_standby_that_commits_wait_for_is_told_of_when_it_is_gone(primary, standby, new_database, initialise, kafka,  # noqa: F811
                                                                    topics, relay):
    """The server lives and confirms nothing: neither a claim nor a renewal. Nothing is sent until a standby confirms again."""
    outbox = initialise(new_database(primary))
    primary.settings["synchronous_standby_names"] = "*"
    outbox.execute("alter system set synchronous_standby_names = '*'")
    outbox.execute("select pg_reload_conf()")
    running = relay(outbox, "--lease-ms", 1500)
    insert(outbox, topics[0], 10)
    wait_settled(outbox)
    standby.kill()
    with outbox.connect() as writer:
        writer.execute("set synchronous_commit = local")
        writer.execute("insert into outbox.message (topic, key, payload) values (%s, 'k', 'unconfirmed')", (topics[1],))
        assert "no answer for longer than the lease" in running.wait_log("database trouble, trying again")
        assert kafka.read_all(topics[1]) == [], "sent although the claim is not confirmed"
    standby.start()
    running.wait_log("database is back", 60)
    wait_until(lambda: dispatched(outbox) == 11, 60, "the receipts")
    assert_all_arrived_once(outbox, kafka, topics)
    assert running.stop() == 0
