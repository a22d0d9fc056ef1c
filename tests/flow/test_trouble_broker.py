"""A broker that is away is nobody's failure: no attempt is counted, one line says so, and delivery goes on when it is back."""

import time

import pytest
from load import Load, dispatched, wait_dispatched, wait_settled
from verify import verify

from lib.devserver import free_port
from lib.wait import wait_until

OUTAGE_S = 15


@pytest.fixture
def broker(own_kafka):
    return own_kafka()


def stay_out(outbox, seconds):
    """Watches the outbox for so long: nothing is failed, nothing parked, no attempt counted."""
    end = time.monotonic() + seconds

    def is_over():
        assert outbox.sql("select id, state, attempts, error from outbox.parked limit 3") == []
        return time.monotonic() >= end

    wait_until(is_over, seconds + 60, "the end of the outage")


def assert_one_line_each(running):
    lines = running.log_text().splitlines()
    assert sum("no broker can be reached" in line for line in lines) == 1, running.log_text()
    assert sum("broker is back" in line for line in lines) == 1, running.log_text()
    assert not any(" error " in line for line in lines), running.log_text()


@pytest.mark.long
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_case_04_an_outage_under_load_is_nobodys_attempt(outbox, broker, relay, end):
    topics = [broker.create_topic(partitions=3), broker.create_topic()]
    running = relay(outbox.database, brokers=broker.bootstrap)
    with Load(outbox.database, topics, writers=3):
        wait_dispatched(outbox.database, 500)
        getattr(broker, end)()
        running.wait_log("no broker can be reached")
        stay_out(outbox, OUTAGE_S)
        before = dispatched(outbox.database)
        broker.start()
        running.wait_log("broker is back", 60)
        wait_dispatched(outbox.database, 500)
    wait_settled(outbox.database)
    print(f"{before} dispatched before the broker came back, {dispatched(outbox.database)} in the end")
    assert outbox.sql("select id, state, attempts, error from outbox.parked limit 3") == []
    verdict = verify(outbox.database, broker, topics)
    print(verdict)
    assert verdict.exactly_once(), verdict
    assert_one_line_each(running)
    assert running.stop() == 0


def test_rows_committed_during_an_outage_wait_and_go(outbox, broker, relay):
    """Idle when the broker goes: it is noticed, rows that come meanwhile stay on their way, and all go when it is back."""
    topic = broker.create_topic(partitions=2)
    running = relay(outbox.database, brokers=broker.bootstrap)
    outbox.generate(topic, 10)
    outbox.wait_states({"dispatched": 10})
    broker.kill()
    running.wait_log("no broker can be reached")
    outbox.generate(topic, 100, first=11)
    outbox.wait_states({"dispatched": 10, "requesting": 100}, topic)
    outbox.generate("never-seen", 10)
    broker.start()
    outbox.wait_states({"dispatched": 110}, topic)
    outbox.wait_states({"failed": 1, "held": 9}, "never-seen")
    verdict = verify(outbox.database, broker, [topic])
    assert verdict.exactly_once(), verdict
    assert_one_line_each(running)


def test_a_relay_killed_during_an_outage_goes_on_after_both_are_back(outbox, broker, relay):
    topic = broker.create_topic(partitions=2)
    running = relay(outbox.database, "--lease-ms", "2000", brokers=broker.bootstrap)
    outbox.generate(topic, 100)
    outbox.wait_states({"dispatched": 100})
    broker.stop()
    outbox.generate(topic, 500, first=101)
    outbox.wait_states({"dispatched": 100, "requesting": 500})
    running.kill()
    broker.start()
    relay(outbox.database, "--lease-ms", "2000", brokers=broker.bootstrap)
    outbox.wait_states({"dispatched": 600})
    verdict = verify(outbox.database, broker, [topic])
    assert verdict.at_least_once(), verdict


def test_case_23_no_broker_at_the_start_is_an_error_with_its_reason(outbox, relay):
    nobody = f"127.0.0.1:{free_port()}"
    running = relay(outbox.database, brokers=nobody)
    assert running.wait(60) == 4
    warning, line = running.log_text().splitlines()
    assert "no broker can be reached" in warning
    assert nobody in line and "option brokers" in line and "refused" in line, line


def test_a_name_that_nobody_knows_is_an_error_with_its_reason(outbox, relay):
    running = relay(outbox.database, brokers="no-such-host.invalid:9092")
    assert running.wait(60) == 4
    warning, line = running.log_text().splitlines()
    assert "no broker can be reached" in warning
    assert "no-such-host.invalid" in line and "resolve" in line, line


def test_librdkafkas_debug_lines_do_not_stop_the_relay(outbox, kafka, relay):
    topic = kafka.create_topic()
    running = relay(outbox.database, "--log-level", "debug", "--kafka", "debug=broker,topic")
    outbox.generate(topic, 100)
    outbox.wait_states({"dispatched": 100})
    running.wait_log("librdkafka")


def test_more_partitions_under_load_are_used_and_lose_nothing(outbox, kafka, relay):
    """Keys move to other partitions, so that order across the change is not promised; all else is."""
    topic, before, after = kafka.create_topic(partitions=2), 2, 6
    running = relay(outbox.database, "--metadata-refresh-ms", "1000")
    with Load(outbox.database, [topic], writers=3):
        wait_dispatched(outbox.database, 500)
        kafka.add_partitions(topic, after)
        line = running.wait_log("the number of partitions changed", 60)
        wait_dispatched(outbox.database, 1000)
    wait_settled(outbox.database)
    assert f"topic={topic} from={before} to={after}" in line
    verdict = verify(outbox.database, kafka, [topic])
    print(verdict)
    assert not (verdict.missing or verdict.invented or verdict.doubled or verdict.altered), verdict
    assert not (verdict.unreceipted or verdict.false_receipts), verdict
    assert {record.partition for record in kafka.read_all(topic)} == set(range(after))
    outbox.generate(topic, 100, key="'new ' || n")
    outbox.wait_states({"dispatched": verdict.committed + 100})
    fresh = {row.id for row in outbox.sql("select id from outbox.message where key like 'new %'")}
    assert not fresh & set(verify(outbox.database, kafka, [topic]).misplaced), "the old count was used"
