"""A topic that is not there stops itself alone: its rows wait in order, and go out when it appears, without a restart."""

import re

import pytest
from load import Load, wait_dispatched, wait_settled
from verify import verify

from lib.wait import wait_until


@pytest.mark.parametrize("broker", ["kafka", "kafka_autocreate"])
def test_case_21_an_absent_topic_fails_one_row_holds_the_others_and_is_not_created(request, outbox, relay, broker):
    kafka = request.getfixturevalue(broker)
    good, absent = kafka.create_topic(), f"absent-{broker}"
    first = outbox.insert(absent, key="a", payload="first")
    outbox.generate(absent, 20, key="case when n % 4 > 0 then 'k' || n % 4 end")
    outbox.generate(good, 100)
    running = relay(outbox.database, brokers=kafka.bootstrap)
    outbox.wait_states({"dispatched": 100}, good)
    outbox.wait_states({"failed": 1, "held": 20}, absent)
    outbox.generate(absent, 20, first=21)
    outbox.generate(good, 100)
    outbox.wait_states({"dispatched": 200}, good)
    outbox.wait_states({"failed": 1, "held": 40}, absent)
    failed = outbox.row(first.id)
    assert (failed.state, failed.waits_for_id) == ("failed", None)
    assert failed.next_attempt_at is not None and failed.first_error_at is not None
    assert failed.error_code == "UNKNOWN_TOPIC_OR_PART" and absent in failed.error and "create it" in failed.error
    assert outbox.sql("select distinct waits_for_id from outbox.status where state = 'held'") == [(first.id,)]
    wait_until(lambda: outbox.row(first.id).attempts >= 4, 60, "four attempts")
    assert absent not in kafka.topics(), "somebody created it"
    assert running.log_text().count("will be tried again") == 1, "not a line for each attempt"
    kafka.create_topic(absent, 3)
    outbox.wait_resolved()
    verdict = verify(outbox.database, kafka, [good, absent])
    assert verdict.exactly_once(), verdict


def test_case_20_a_topic_deleted_and_created_again_with_other_partitions_goes_on(outbox, kafka, relay):
    topic, other = kafka.create_topic(partitions=2), kafka.create_topic()
    running = relay(outbox.database)
    outbox.generate(topic, 100)
    outbox.wait_states({"dispatched": 100})
    kafka.delete_topic(topic)
    outbox.generate(topic, 50)
    outbox.generate(other, 50)
    outbox.wait_states({"dispatched": 50}, other)
    outbox.wait_states({"dispatched": 100, "failed": 1, "held": 49}, topic)
    kafka.create_topic(topic, 5)
    outbox.wait_resolved()
    verdict = verify(outbox.database, kafka, [topic])
    lost_with_the_topic = list(range(1, 101))
    assert verdict.missing == lost_with_the_topic and not (verdict.doubled or verdict.disordered or verdict.misplaced), verdict
    assert [receipt for receipt in verdict.false_receipts if receipt[0] > 100] == []
    assert running.running


def test_case_20_a_topic_created_again_under_load_gets_all_that_follows(outbox, kafka, relay):
    """Nobody waits for the relay to notice: what was acknowledged by the old topic is gone with it, all else arrives."""
    topic, other = kafka.create_topic(partitions=3), kafka.create_topic(partitions=3)
    running = relay(outbox.database)
    with Load(outbox.database, [topic, other], writers=3):
        wait_dispatched(outbox.database, 500)
        kafka.delete_topic(topic)
        kafka.create_topic(topic, 3)
        (last,) = outbox.sql("select max(id) as id from outbox.message")
        wait_dispatched(outbox.database, 2000)
    wait_settled(outbox.database)
    verdict = verify(outbox.database, kafka, [topic])
    print(verdict)
    gone = outbox.sql("select coalesce(max(id), 0) as id from outbox.receipt where topic = %s and id = any (%s)",
                      topic, verdict.missing)[0].id
    assert gone <= last.id, f"message {gone}, committed after the topic was there again, is missing"
    assert not (verdict.invented or verdict.altered or verdict.misplaced or verdict.disordered or verdict.unreceipted), verdict
    assert verify(outbox.database, kafka, [other]).at_least_once()
    assert running.running


MANY = 30  # more than are looked up one by one


@pytest.mark.parametrize("broker", ["kafka", "kafka_autocreate"])
def test_of_many_topics_asked_for_at_once_the_absent_ones_wait_and_are_not_created(request, outbox, relay, broker):
    kafka = request.getfixturevalue(broker)
    good = [kafka.create_topic(partitions=1 + n % 3) for n in range(MANY)]
    absent = [f"many-{broker}-{n}" for n in range(5)]
    for topic in absent + good:
        outbox.generate(topic, 5)
    relay(outbox.database, brokers=kafka.bootstrap)
    outbox.wait_states({"dispatched": 5 * MANY, "failed": len(absent), "held": 4 * len(absent)})
    assert not kafka.topics() & set(absent), "somebody created them"
    for topic in absent:
        kafka.create_topic(topic, 2)
    outbox.wait_resolved()
    verdict = verify(outbox.database, kafka, good + absent)
    assert verdict.exactly_once(), verdict


def test_only_absent_topics_are_not_created_either(outbox, kafka_autocreate, relay):
    absent = [f"all-absent-{n}" for n in range(MANY)]
    for topic in absent:
        outbox.generate(topic, 2)
    relay(outbox.database, brokers=kafka_autocreate.bootstrap)
    outbox.wait_states({"failed": MANY, "held": MANY})
    least = "select min(attempts) as attempts from outbox.parked where state = 'failed'"
    wait_until(lambda: outbox.sql(least)[0].attempts >= 3, 60, "three attempts each")
    assert not kafka_autocreate.topics() & set(absent), "somebody created them"


def count_requests(running, name):
    return len(re.findall(rf"Sent {name}Request", running.log_text()))


def test_many_topics_take_few_requests_and_what_changes_among_them_is_noticed(outbox, kafka, relay):
    topics = [kafka.create_topic(partitions=2) for _ in range(MANY)]
    grows, goes = topics[3], topics[7]
    for topic in topics:
        outbox.generate(topic, 10)
    running = relay(outbox.database, "--metadata-refresh-ms", 500, "--log-level", "debug", "--kafka", "debug=protocol,metadata")
    outbox.wait_states({"dispatched": 10 * MANY})
    at_first = count_requests(running, "Metadata")
    assert at_first < MANY, "the broker was asked for them one by one"
    assert "Request metadata for all topics" not in running.log_text(), "the topics of the whole cluster are nobody's business"
    kafka.add_partitions(grows, 5)
    running.wait_log("the number of partitions changed")
    wait_until(lambda: count_requests(running, "DescribeConfigs") >= 6, 60, "several more look-ups")
    looks = count_requests(running, "DescribeConfigs")
    assert count_requests(running, "Metadata") < at_first + 5 * looks
    kafka.delete_topic(goes)
    for topic in topics:
        outbox.generate(topic, 10, first=11)
    outbox.wait_states({"dispatched": 20 * MANY - 10, "failed": 1, "held": 9})
    kafka.create_topic(goes, 3)
    outbox.wait_resolved()
    assert max(record.partition for record in kafka.read_all(grows)) >= 2
    verdict = verify(outbox.database, kafka, [topic for topic in topics if topic not in (grows, goes)])
    assert verdict.exactly_once(), verdict
