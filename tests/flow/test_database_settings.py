"""What a role prescribes to its transactions does not get in the relay's way."""

import pytest

from lib.wait import wait_until
from load import Load, insert, wait_dispatched
from verify import verify


@pytest.fixture
def topics(kafka):
    return [kafka.create_topic(partitions=4), kafka.create_topic()]


@pytest.fixture
def strict_role(schema_ready):
    """Makes a role for the relay whose transactions have a default isolation level: strict_role(level), its name."""
    role = f"strict_{schema_ready.name}"
    schema_ready.execute(f"create role {role} login in role outbox_relay")

    def make(isolation):
        schema_ready.execute(f"alter role {role} set default_transaction_isolation = '{isolation}'")
        return role

    yield make
    schema_ready.execute(f"drop role {role}")


@pytest.mark.parametrize("isolation", ["serializable", "repeatable read"])
def test_a_default_isolation_level_of_the_role_changes_nothing(schema_ready, strict_role, kafka, topics, relay, isolation):
    """Rows fail and come back under load, so that parked rows are claimed and settled beside all else."""
    conninfo = schema_ready.server.conninfo(schema_ready.name, user=strict_role(isolation))
    with relay(conninfo, "--lease-ms", 1000, "--retry-initial-ms", 50) as running:
        with Load(schema_ready, topics):
            for _ in range(8):
                wait_dispatched(schema_ready, 300)
                insert(schema_ready, "not.there", 10)
        wait_until(lambda: schema_ready.value("select count(*) from outbox.parked where topic = 'not.there'") == 80, 30,
                   "the rows of a topic that is not there")
        seen = schema_ready.value("select heartbeat_at from outbox.relay")
        wait_until(lambda: schema_ready.value("select heartbeat_at > %s from outbox.relay", (seen,)), 10, "a renewal")
        assert "trouble" not in running.log_text(), "a serialization failure cost the connections"
        assert running.stop() == 0
    verdict = verify(schema_ready, kafka, topics)
    assert verdict.exactly_once(), verdict
