"""Two relays on one outbox: one leads, the other waits and says so, and whoever lost the lease writes nothing more."""

import signal

import pytest

from load import Load, insert, wait_dispatched, wait_settled
from verify import verify

LONG_LEASE = ("--lease-ms", 60_000)
SHORT_LEASE = ("--lease-ms", 2500)
EPOCHS = "select epoch, min(id), max(id) from outbox.batch group by 1 order by 2"


@pytest.fixture
def topics(kafka):
    return [kafka.create_topic(partitions=4), kafka.create_topic()]


def leader_and_standby(relay, database, *flags):
    first = relay(database, *flags)
    first.wait_log("leading")
    second = relay(database, *flags)
    second.wait_log("standby: another relay leads")
    return first, second


def assert_epochs_in_order(database):
    """Batches of one term lie together, and terms follow each other: nobody claimed after another had taken over."""
    terms = database.rows(EPOCHS)
    assert [epoch for epoch, _, _ in terms] == sorted(epoch for epoch, _, _ in terms)
    assert all(later[1] == earlier[2] + 1 for earlier, later in zip(terms, terms[1:])), terms
    return terms


def test_the_second_relay_waits_names_the_leader_and_sends_nothing(schema_ready, kafka, topics, relay):
    first, second = leader_and_standby(relay, schema_ready, *LONG_LEASE)
    assert f"pid {first.pid}" in second.wait_log("standby: another relay leads")
    insert(schema_ready, topics[0], 50)
    wait_settled(schema_ready)
    assert second.stop() == 0
    assert "leading" not in second.log_text()
    assert schema_ready.rows("select epoch, holder is not null from outbox.relay") == [(1, True)]
    assert verify(schema_ready, kafka, topics).exactly_once()


def test_case_12_a_clean_stop_hands_over_long_before_the_lease_would_end(schema_ready, kafka, topics, relay):
    first, second = leader_and_standby(relay, schema_ready, *LONG_LEASE)
    with Load(schema_ready, topics):
        wait_dispatched(schema_ready, 500)
        assert first.stop() == 0
        second.wait_log("leading", 10)
        wait_dispatched(schema_ready, 500)
    wait_settled(schema_ready)
    verdict = verify(schema_ready, kafka, topics)
    print(verdict)
    assert verdict.exactly_once(), verdict
    assert_epochs_in_order(schema_ready)


def test_case_12_after_a_crash_the_standby_leads_when_the_lease_has_ended(schema_ready, kafka, topics, relay):
    """Ended by the database's clock: not before, and soon after."""
    first, second = leader_and_standby(relay, schema_ready, *SHORT_LEASE)
    with Load(schema_ready, topics):
        wait_dispatched(schema_ready, 500)
        first.kill()
        expiry = schema_ready.value("select lease_expires_at from outbox.relay where epoch = 1")
        second.wait_log("leading", 20)
        taken = schema_ready.value("select acquired_at from outbox.relay where epoch = 2")
        wait_dispatched(schema_ready, 500)
    wait_settled(schema_ready)
    assert taken > expiry
    verdict = verify(schema_ready, kafka, topics)
    print(verdict)
    assert verdict.at_least_once(), verdict
    assert_epochs_in_order(schema_ready)


def test_case_11_a_leader_that_was_frozen_writes_nothing_steps_down_and_can_lead_again(
        schema_ready, kafka, topics, relay):
    """Three rounds under load: freeze the leader for longer than its lease, thaw it, let it take over again."""
    first, second = leader_and_standby(relay, schema_ready, *SHORT_LEASE)
    leader, other = first, second
    with Load(schema_ready, topics):
        for _ in range(3):
            seen, other_seen = len(leader.lines), len(other.lines)
            wait_dispatched(schema_ready, 300)
            leader.signal(signal.SIGSTOP)
            other.wait_log("leading", 20, after=other_seen)
            wait_dispatched(schema_ready, 300)
            leader.signal(signal.SIGCONT)
            leader.wait_log("another relay took over: stepping down", 20, after=seen)
            leader.wait_log("standby: another relay leads", 20, after=seen)
            wait_dispatched(schema_ready, 300)
            leader, other = other, leader
        other_seen = len(other.lines)
        assert leader.stop() == 0
        other.wait_log("leading", 20, after=other_seen)
        wait_dispatched(schema_ready, 300)
    wait_settled(schema_ready)
    terms = assert_epochs_in_order(schema_ready)
    verdict = verify(schema_ready, kafka, topics)
    print(terms, verdict, sep="\n")
    assert verdict.at_least_once(), verdict
    assert len(terms) >= 5


def test_a_second_name_is_refused_because_it_would_send_everything_again(schema_ready, kafka, relay, run_denpyo):
    topic = kafka.create_topic()
    insert(schema_ready, topic, 5)
    running = relay(schema_ready)
    wait_settled(schema_ready)
    ended = run_denpyo("run", "--postgres", schema_ready.conninfo, "--brokers", kafka.bootstrap, "--relay", "other")
    assert ended.returncode == 2
    assert 'relayed under the name "default"' in ended.stderr and "--relay default" in ended.stderr
    assert running.stop() == 0
    assert schema_ready.value("select count(*) from outbox.relay") == 1
    assert verify(schema_ready, kafka, [topic]).exactly_once()
