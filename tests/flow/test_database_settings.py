"""What a role prescribes to its transactions does not get in the relay's way."""

import pytest

from lib.wait import wait_until
from load import Load, insert, wait_dispatched, wait_settled
from verify import verify


@pytest.fixture
def topics(kafka):
    return [kafka.create_topic(partitions=4), kafka.create_topic()]


@pytest.fixture
def role(schema_ready):
    """The name of a role for the relay, with no more than outbox_relay gives it."""
    name = f"role_{schema_ready.name}"
    schema_ready.execute(f"create role {name} login in role outbox_relay")
    yield name
    schema_ready.execute(f"drop role {name}")


def connect_anew(database, role):
    """Ends a role's connections: what is prescribed to it holds for its next ones."""
    database.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", (role,))


@pytest.mark.parametrize("isolation", ["serializable", "repeatable read"])
def test_a_default_isolation_level_of_the_role_changes_nothing(schema_ready, role, kafka, topics, relay, isolation):
    """Rows fail and come back under load, so that parked rows are claimed and settled beside all else."""
    schema_ready.execute(f"alter role {role} set default_transaction_isolation = '{isolation}'")
    with relay(schema_ready.server.conninfo(schema_ready.name, user=role), "--lease-ms", 1000, "--retry-initial-ms", 50) as running:
        with Load(schema_ready, topics):
            for _ in range(8):
                wait_dispatched(schema_ready, 300)
                insert(schema_ready, "not.there", 10)
        wait_until(lambda: schema_ready.value("select count(*) from outbox.status where topic = 'not.there'"
                                              " and state in ('failed', 'held')") == 80, 30,
                   "the rows of a topic that is not there")
        seen = schema_ready.value("select heartbeat_at from outbox.relay")
        wait_until(lambda: schema_ready.value("select heartbeat_at > %s from outbox.relay", (seen,)), 10, "a renewal")
        assert "trouble" not in running.log_text(), "a serialization failure cost the connections"
        assert running.stop() == 0
    verdict = verify(schema_ready, kafka, topics)
    assert verdict.exactly_once(), verdict


@pytest.mark.parametrize("setting, value, reason", [
    ("statement_timeout", "1ms", "statement timeout"),
    ("idle_session_timeout", "1ms", "idle-session timeout"),
    ("default_transaction_read_only", "on", "read-only"),
])
def test_a_setting_that_stops_the_relay_is_told_of_and_waited_for(schema_ready, role, kafka, topics, relay, setting, value, reason):
    """It comes while the relay runs, and goes again."""
    with relay(schema_ready.server.conninfo(schema_ready.name, user=role)) as running:
        with Load(schema_ready, topics):
            wait_dispatched(schema_ready, 300)
            schema_ready.execute(f"alter role {role} set {setting} = '{value}'")
            connect_anew(schema_ready, role)
            wait_until(lambda: any(reason in line for line in running.lines), 30, f"a line about {reason}")
            schema_ready.execute(f"alter role {role} reset all")
            connect_anew(schema_ready, role)
            wait_dispatched(schema_ready, 300)
        wait_settled(schema_ready)
        running.wait_log("database is back")
        assert running.stop() == 0
    verdict = verify(schema_ready, kafka, topics)
    assert verdict.exactly_once(), verdict


def test_a_privilege_that_is_revoked_is_named_and_waited_for(schema_ready, role, kafka, topics, relay):
    with relay(schema_ready.server.conninfo(schema_ready.name, user=role)) as running:
        with Load(schema_ready, topics):
            wait_dispatched(schema_ready, 300)
            schema_ready.execute(f"revoke outbox_relay from {role}")
            assert f"GRANT outbox_relay TO {role}" in running.wait_log("database trouble, trying again")
            schema_ready.execute(f"grant outbox_relay to {role}")
            running.wait_log("database is back")
            wait_dispatched(schema_ready, 300)
        wait_settled(schema_ready)
        assert running.stop() == 0
    verdict = verify(schema_ready, kafka, topics)
    assert verdict.exactly_once(), verdict
