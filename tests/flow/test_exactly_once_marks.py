"""The mark in each transaction: what was committed is known for certain, also when its records or the mark are gone."""

import os
import random
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from outbox import Outbox

from lib.kafka_tools import delete_group, delete_records
from lib.wait import wait_until

STEPS = ["before_mark", "after_mark", "in_commit", "after_commit"]


@pytest.fixture(scope="session")
def die_in_commit(folders):
    """A library that kills the relay that it is preloaded into."""
    target = folders.new("preload") / "die_in_commit.so"
    subprocess.run([os.environ.get("CC", "cc"), "-std=c17", "-D_GNU_SOURCE", "-shared", "-fPIC", "-w", "-o", target,
                    Path(__file__).with_name("die_in_commit.c"), "-ldl"], check=True)
    return target


@pytest.fixture
def flags(database):
    return ["--delivery", "exactly_once", "--transactional-id", f"test-{database.name}", "--lease-ms", 1500,
            "--retry-initial-ms", 100]


def fence(broker, transactional_id):
    """As a successor does first: what is being committed is committed then, and what is open is aborted."""
    Producer(broker.client | {"transactional.id": transactional_id}).init_transactions(30)


def committed(broker, topics):
    """Message ids as a read_committed consumer sees them, with how often."""
    return Counter(record.message_id for topic in topics for record in broker.read_all(topic, "read_committed"))


def message_ids(outbox, topics):
    return {row.message_id for row in outbox.sql(
        "select message_id::text from outbox.message where topic = any (%s)", topics)}


def wait_committed(broker, topics, expected, before=Counter()):
    """
    Waits until consumers have seen all that is expected (a commit is confirmed a moment before they see it), each once.
    """
    wait_until(lambda: set(before + committed(broker, topics)) >= expected, 30, "all messages")
    assert before + committed(broker, topics) == Counter(expected)


def die(relay, outbox, broker, flags, library, step, number):
    """In the commit of so many transactions; each has 300 messages at most (three times --inflight-messages)."""
    env = {"LD_PRELOAD": library, "DIE_AT": step, "DIE_IN": number, "DIE_AFTER_MS": random.choice([1, 2, 5, 20]),
           "ASAN_OPTIONS": "verify_asan_link_order=0"}
    dying = relay(outbox.database, *flags, "--batch-rows", 100, "--inflight-messages", 100, brokers=broker.bootstrap, env=env)
    dying.wait(60)


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("step", STEPS)
def test_records_are_deleted_after_a_death_at_any_step(outbox, kafka, relay, flags, die_in_commit, step, number):
    """
    Some topics are missing and some messages too large, so that a batch is never sent as a whole: what was not sent
    must be sent by the successor, and what was sent must not, although no topic holds it any more.
    """
    topics = [kafka.create_topic(partitions=3), kafka.create_topic()]
    missing = f"{topics[0]}-missing"
    for first in range(1, 1000, 50):
        outbox.generate(topics[0], 30, first=first)
        outbox.generate(topics[1], 19, first=first, key="null")
        outbox.generate(missing, 1, first=first, key="null")
    die(relay, outbox, kafka, flags, die_in_commit, step, number)
    assert outbox.sql("select 1 from outbox.batch b where not exists (select from outbox.settlement s where s.id = b.id)")
    fence(kafka, flags[3])
    seen = committed(kafka, topics)
    unsettled = {row.id for row in outbox.sql("select message_id::text as id from outbox.status where state = 'requesting'")}
    delete_records(kafka, topics)
    assert not committed(kafka, topics)
    successor = relay(outbox.database, *flags)
    kafka.create_topic(missing)
    outbox.wait_resolved()
    wait_committed(kafka, [*topics, missing], message_ids(outbox, [*topics, missing]), seen)
    if step == "after_commit" and unsettled & set(seen):  # it may have lived long enough to write its receipts
        assert "sent twice" not in successor.log_text()
        gone = outbox.sql('select count(*)::int from outbox.receipt where "offset" = -1')[0][0]
        assert gone > 0, "the place of what is gone is not invented"


def test_a_mark_that_expired_is_replaced_by_a_look(outbox, kafka, relay, flags, die_in_commit):
    topic = kafka.create_topic(partitions=3)
    outbox.generate(topic, 500)
    die(relay, outbox, kafka, flags, die_in_commit, "after_commit", 2)
    delete_group(kafka, flags[3])
    relay(outbox.database, *flags)
    outbox.wait_resolved()
    wait_committed(kafka, [topic], message_ids(outbox, [topic]))


def test_when_mark_and_records_are_gone_it_says_what_it_does_not_know(outbox, kafka, relay, flags, die_in_commit):
    topic = kafka.create_topic()
    outbox.generate(topic, 300)
    die(relay, outbox, kafka, flags, die_in_commit, "after_commit", 1)
    delete_group(kafka, flags[3])
    delete_records(kafka, [topic])
    successor = relay(outbox.database, *flags, "--on-unknown", "hold")
    assert "may be sent twice" in successor.wait_log("deleted before they could be looked up")
    wait_until(lambda: outbox.states(topic).get("rejected"), 60, "messages that a person decides on")
    outbox.wait_resolved()
    assert set(outbox.states(topic)) <= {"dispatched", "rejected"}


def test_another_outboxes_mark_is_not_believed(outbox, kafka, relay, flags, die_in_commit, new_database, postgres, initialise):
    """The same transactional id by mistake, or a database that was made anew: the numbers of the batches are the same."""
    topic = kafka.create_topic()
    with closing(Outbox(initialise(new_database(postgres)))) as other:
        other.generate(topic, 500)
        relay(other.database, *flags, "--batch-rows", 100).wait_log("leading")
        other.wait_resolved()
        outbox.generate(topic, 500)
        die(relay, outbox, kafka, flags, die_in_commit, "before_mark", 1)
        relay(outbox.database, *flags)
        outbox.wait_resolved()
        ids = message_ids(outbox, [topic]) | message_ids(other, [topic])
    wait_committed(kafka, [topic], ids)
