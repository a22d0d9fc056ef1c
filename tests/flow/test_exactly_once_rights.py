"""What exactly-once mode may and may not do on a cluster with access control: said with what to grant, healed by the grant."""

import pytest
from test_outcome_access import AUTHORIZER, Denial

from lib.kafka import Kafka
from lib.wait import wait_until


@pytest.fixture(scope="module")
def guarded(folders):
    broker = Kafka(folders.new("kafka"), AUTHORIZER)
    yield broker
    broker.kill()


@pytest.fixture
def flags(database):
    return ["--delivery", "exactly_once", "--transactional-id", f"test-{database.name}"]


def check(run_denpyo, outbox, broker, flags):
    done = run_denpyo("check", "--postgres", outbox.database, "--brokers", broker.bootstrap, *flags)
    return done.returncode, [line for line in done.stdout.splitlines() if " delivery " in line]


@pytest.mark.parametrize("kind, operation, remedy", [
    ("--group", "Read", "grant the relay Read on the consumer group"),  # said by the broker at the first commit
    ("--group", "Describe", "grant the relay Read on that group"),  # neither Read nor Describe: at the start
    ("--transactional-id", "Write", "grant it Write and Describe"),
])
def test_without_a_right_nothing_is_sent_until_it_is_granted(outbox, guarded, relay, run_denpyo, flags, kind, operation, remedy):
    topic = guarded.create_topic(partitions=2)
    outbox.generate(topic, 50)
    denial = Denial(guarded, operation, kind, flags[3])
    running = relay(outbox.database, *flags, brokers=guarded.bootstrap)
    line = running.wait_log("the producer cannot go on", 60)
    assert "AUTHORIZATION_FAILED" in line and remedy in line
    if (kind, operation) == ("--group", "Describe"):
        returncode, (told,) = check(run_denpyo, outbox, guarded, flags)
        assert returncode == 1 and told.startswith("FAIL") and "grant the relay Read on that group" in told
    assert guarded.read_all(topic, "read_committed") == []
    assert running.log_text().count("the producer cannot go on") == 1
    denial.grant()
    outbox.wait_states({"dispatched": 50}, topic)
    running.wait_log("the producer works again")
    assert check(run_denpyo, outbox, guarded, flags)[1][0].startswith("OK")


def test_a_topic_that_may_not_be_read_gets_no_mark_and_a_warning(outbox, guarded, relay, run_denpyo, flags):
    """Its messages go out; those of other topics carry marks as ever."""
    denied, good = guarded.create_topic(), guarded.create_topic()
    denial = Denial(guarded, "Read", "--topic", denied)
    running = relay(outbox.database, *flags, brokers=guarded.bootstrap)
    outbox.generate(denied, 10)
    outbox.wait_dispatched(10, denied)
    line = running.wait_log("may not put its mark")
    assert f"topic={denied}" in line and "grant the relay Read" in line
    outbox.generate(good, 10)
    outbox.generate(denied, 10)
    outbox.wait_dispatched(20, denied)
    outbox.wait_dispatched(10, good)
    assert running.log_text().count("may not put its mark") == 1
    returncode, (told,) = check(run_denpyo, outbox, guarded, flags)
    assert returncode == 0 and told.startswith("WARN") and denied in told
    denial.grant()
    wait_until(lambda: len(guarded.read_all(denied, "read_committed")) == 20, 30, "each message once")
