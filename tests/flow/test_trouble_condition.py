"""What keeps the leader from its work is a row, too: whoever asks SQL or `denpyo status` learns it without a log."""

import json

import pytest

from lib.wait import wait_until

LEADER = "select condition, condition_since, condition_detail from outbox.leader"
STUCK = "select problem, id, topic, since, detail from outbox.stuck where id is null"


@pytest.fixture
def broker(own_kafka):
    return own_kafka()


def wait_condition(outbox, word, deadline_s=60):
    wait_until(lambda: outbox.sql(LEADER)[0].condition == word, deadline_s, f"condition {word}")
    return outbox.sql(LEADER)[0]


def test_a_broker_that_is_away_is_a_row_until_it_is_back(outbox, broker, relay, run_denpyo):
    """Also when nothing but rows of a topic never seen shows it, which wait as pending."""
    topic = broker.create_topic()
    running = relay(outbox.database, brokers=broker.bootstrap)
    outbox.generate(topic, 10)
    outbox.wait_states({"dispatched": 10})
    assert outbox.sql(LEADER) == [(None, None, None)] and outbox.sql(STUCK) == []
    broker.kill()
    running.wait_log("no broker can be reached")
    outbox.insert("never-seen", payload="x")
    seen = wait_condition(outbox, "no broker")
    assert broker.bootstrap in seen.condition_detail and "messages wait" in seen.condition_detail
    ((problem, _, _, since, detail),) = outbox.sql(STUCK)
    assert (problem, since) == ("no broker", seen.condition_since) and broker.bootstrap in detail
    ((heartbeat,),) = outbox.sql("select heartbeat_at from outbox.leader")
    wait_until(lambda: outbox.sql("select heartbeat_at from outbox.leader")[0][0] > heartbeat, 30, "another renewal")
    assert outbox.sql(LEADER)[0].condition_since == since, "a renewal makes it look new"
    told = run_denpyo("status", "--postgres", outbox.database)
    assert told.stdout.split("Troubles:\n")[1].startswith("  no broker, for "), told.stdout
    as_json = json.loads(run_denpyo("status", "--json", "--postgres", outbox.database).stdout)
    assert as_json["relays"][0]["condition"] == "no broker" and as_json["troubles"][0]["problem"] == "no broker"
    broker.start()
    wait_condition(outbox, None)
    assert outbox.sql(STUCK) == []


def test_what_a_dead_leader_said_is_no_longer_told(outbox, broker, relay):
    running = relay(outbox.database, "--lease-ms", "2000", brokers=broker.bootstrap)
    running.wait_log("leading")
    broker.kill()
    wait_condition(outbox, "no broker")
    running.kill()
    wait_condition(outbox, None, 10)
    assert outbox.sql(STUCK) == []
    broker.start()
    relay(outbox.database, "--lease-ms", "2000", brokers=broker.bootstrap).wait_log("leading")
    assert outbox.sql("select condition from outbox.relay") == [(None,)]


def test_a_look_up_that_takes_long_is_a_row(outbox, broker, relay):
    """The standby takes over while the broker hangs: no connection breaks, only answers are missing."""
    topic = broker.create_topic()
    first = relay(outbox.database, "--lease-ms", "2000", brokers=broker.bootstrap)
    outbox.generate(topic, 10)
    outbox.wait_states({"dispatched": 10})
    second = relay(outbox.database, "--lease-ms", "2000", brokers=broker.bootstrap)
    second.wait_log("standby")
    broker.freeze()
    try:
        outbox.generate(topic, 100, first=11)
        outbox.wait_states({"dispatched": 10, "requesting": 100})
        first.kill()
        second.wait_log("leading")
        seen = wait_condition(outbox, "recovering")
        assert "which of 100 messages arrived" in seen.condition_detail
    finally:
        broker.thaw()
    outbox.wait_states({"dispatched": 110})
    wait_condition(outbox, None)
