"""Troubles of transactions: other producers of the same id, time-outs, ids that expire, coordinators that move."""

import signal
import time

import pytest
from confluent_kafka import Producer
from load import Load, insert, wait_dispatched, wait_settled
from test_exactly_once import assert_exactly_once

from lib.wait import wait_until


@pytest.fixture
def flags(database):
    return ["--delivery", "exactly_once", "--transactional-id", f"test-{database.name}", "--lease-ms", 1500]


def test_a_transactional_id_without_exactly_once_is_refused(schema_ready, kafka, run_denpyo):
    ended = run_denpyo("run", "--postgres", schema_ready.conninfo, "--brokers", kafka.bootstrap, "--transactional-id", "x")
    assert ended.returncode == 2
    assert "--delivery exactly_once" in ended.stderr


def test_another_producer_of_the_same_id_aborts_what_is_open_and_nothing_else(schema_ready, kafka, relay, flags):
    topics = [kafka.create_topic(partitions=4)]
    running = relay(schema_ready, *flags)
    with Load(schema_ready, topics):
        for _ in range(3):
            wait_dispatched(schema_ready, 100)
            before = running.log_text().count("the producer works again")
            Producer(kafka.client | {"transactional.id": flags[3]}).init_transactions(30)
            wait_until(lambda: running.log_text().count("the producer works again") > before, 60, "the next producer")
    assert "Another producer has this transactional id" in running.log_text()
    wait_settled(schema_ready)
    assert_exactly_once(schema_ready, kafka, topics)


def test_two_outboxes_that_share_an_id_disturb_each_other_and_double_nothing(
        schema_ready, new_database, postgres, initialise, kafka, relay, flags):
    other = initialise(new_database(postgres))
    mine, theirs = kafka.create_topic(), kafka.create_topic()
    first, second = relay(schema_ready, *flags), relay(other, *flags)
    for _ in range(5):
        for outbox, topic in ((schema_ready, mine), (other, theirs)):
            insert(outbox, topic, 100)
            wait_settled(outbox)
    assert "or another outbox by mistake" in first.log_text() + second.log_text()
    assert_exactly_once(schema_ready, kafka, [mine])
    assert_exactly_once(other, kafka, [theirs])


def test_a_transaction_that_takes_too_long_is_aborted_by_the_broker_and_sent_again(schema_ready, own_kafka, relay, flags):
    """The relay stands still with a transaction open until the broker has ended it."""
    broker = own_kafka({"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200})
    topics = [broker.create_topic(partitions=4)]
    running = relay(schema_ready, *flags[:4], "--lease-ms", 60000, "--kafka", "transaction.timeout.ms=1500",
                    brokers=broker.bootstrap)

    def stand_still():
        end = time.monotonic() + 3
        running.signal(signal.SIGSTOP)
        wait_until(lambda: time.monotonic() > end, 10, "the end of the transaction's time")
        running.signal(signal.SIGCONT)
        wait_dispatched(schema_ready, 100)
        return "cannot go on" in running.log_text() or "aborted" in running.log_text()

    with Load(schema_ready, topics):
        wait_dispatched(schema_ready, 200)
        wait_until(stand_still, 120, "a transaction that was open too long")
    wait_settled(schema_ready)
    assert_exactly_once(schema_ready, broker, topics)


def test_an_id_that_expired_is_taken_anew(schema_ready, own_kafka, relay, flags):
    broker = own_kafka({"transactional.id.expiration.ms": 1000, "producer.id.expiration.ms": 1000,
                        "transaction.remove.expired.transaction.cleanup.interval.ms": 200})
    topics = [broker.create_topic(partitions=2)]
    running = relay(schema_ready, *flags, "--log-level", "debug", "--kafka", "debug=eos", brokers=broker.bootstrap)

    def send():
        end = time.monotonic() + 3
        wait_until(lambda: time.monotonic() > end, 10, "the id's expiry")
        insert(schema_ready, topics[0], 100)
        wait_settled(schema_ready, 60)
        return "not currently assigned to its transactional id" in running.log_text()

    wait_until(send, 60, "the broker's refusal of an id that it forgot")
    assert_exactly_once(schema_ready, broker, topics)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_the_coordinator_goes_while_a_commit_is_under_way(schema_ready, own_kafka, relay, flags, end):
    """Its broker restarts at once, twice; the outcome of the commit is asked for until it is known."""
    broker = own_kafka()
    topics = [broker.create_topic(partitions=4)]
    relay(schema_ready, *flags, brokers=broker.bootstrap)
    with Load(schema_ready, topics):
        for _ in range(2):
            wait_dispatched(schema_ready, 300, deadline_s=120)
            getattr(broker, end)()
            broker.start()
        wait_dispatched(schema_ready, 300, deadline_s=120)
    wait_settled(schema_ready)
    assert_exactly_once(schema_ready, broker, topics)


def test_a_broker_that_keeps_short_texts_only_gets_shorter_marks(schema_ready, own_kafka, relay, flags):
    broker = own_kafka({"offset.metadata.max.bytes": 30})
    topic = broker.create_topic()
    insert(schema_ready, topic, 500)
    running = relay(schema_ready, *flags, "--batch-rows", 50, brokers=broker.bootstrap)
    wait_settled(schema_ready)
    assert "cannot go on" not in running.log_text()
    assert_exactly_once(schema_ready, broker, [topic])
