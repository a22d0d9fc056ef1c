"""The verifier itself: it finds each kind of wrong that these tests rely on it to find."""

import uuid

import pytest

from ledger import Ledger
from verify import java_partition, verify

# Of the Java client's own UtilsTest: murmur2 of a key.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.fixture
def outbox(schema_ready):
    with schema_ready.connect() as connection:
        yield connection


@pytest.fixture
def topic(kafka):
    return kafka.create_topic(partitions=3)


def commit(outbox, topic, key="a", value="v"):
    return outbox.execute("insert into outbox.message (topic, key, payload) values (%s, %s, %s) returning id, message_id::text",
                          (topic, key, value)).fetchone()


def send(kafka, topic, message_id, key=b"a", value=b"v", partition=None):
    kafka.produce(topic, value, key, [("id", message_id.encode())],
                  java_partition(key, 3) if partition is None else partition)


def receipt(outbox, row, topic, partition, offset, batch=1):
    outbox.execute("insert into outbox.settlement (relay, id, topic_names, ids, message_ids, topics, partitions, offsets)"
                   " values ('default', %s, %s, %s, %s::uuid[], '{1}', %s, %s)",
                   (batch, [topic], [row[0]], [row[1]], [partition], [offset]))


def test_a_message_that_went_out_once_with_its_receipt_is_good(schema_ready, outbox, kafka, topic):
    row = commit(outbox, topic)
    send(kafka, topic, row[1])
    receipt(outbox, row, topic, java_partition(b"a", 3), 0)
    verdict = verify(schema_ready, kafka, [topic])
    assert verdict.exactly_once(), verdict
    assert (verdict.committed, verdict.records) == (1, 1)


def test_what_is_missing_and_what_is_invented(schema_ready, outbox, kafka, topic):
    lost, stranger = commit(outbox, topic), str(uuid.uuid4())
    send(kafka, topic, stranger)
    verdict = verify(schema_ready, kafka, [topic])
    assert (verdict.missing, verdict.unreceipted, verdict.invented) == ([lost[0]], [lost[0]], [stranger])
    assert not verdict.truthful() and not verdict.at_least_once()


def test_what_comes_twice_altered_or_to_the_wrong_partition(schema_ready, outbox, kafka, topic):
    rows = [commit(outbox, topic) for _ in range(3)]
    send(kafka, topic, rows[0][1])
    send(kafka, topic, rows[1][1], value=b"another")
    send(kafka, topic, rows[0][1])
    send(kafka, topic, rows[2][1], partition=(java_partition(b"a", 3) + 1) % 3)
    verdict = verify(schema_ready, kafka, [topic])
    assert (verdict.doubled, verdict.altered, verdict.misplaced) == ({rows[0][0]: 2}, [rows[1][0]], [rows[2][0]])
    assert not verdict.exactly_once()


def test_disorder_counts_first_occurrences_of_ordered_keys(schema_ready, outbox, kafka, topic):
    first, second, third = (commit(outbox, topic) for _ in range(3))
    for row in (first, third, first, second, third):
        send(kafka, topic, row[1])
    lane = (topic, java_partition(b"a", 3), b"a")
    verdict = verify(schema_ready, kafka, [topic])
    assert (verdict.disordered, verdict.late) == ([(*lane, third[0], second[0])], 1)
    assert verify(schema_ready, kafka, [topic], lambda key: key != b"a").disordered == []


def test_receipts_are_held_against_the_log(schema_ready, outbox, kafka, topic):
    rows, place = [commit(outbox, topic) for _ in range(2)], java_partition(b"a", 3)
    Ledger(outbox)
    for row in rows:
        send(kafka, topic, row[1])
    receipt(outbox, rows[0], topic, place, 0)
    receipt(outbox, rows[1], topic, place, 0, batch=2)
    receipt(outbox, rows[0], topic, place, 0, batch=3)
    verdict = verify(schema_ready, kafka, [topic])
    assert sorted(verdict.false_receipts) == sorted([(rows[1][0], topic, place, 0), (rows[0][0], topic, place, 0)])


def test_partitions_are_those_of_the_java_client():
    found = {key: java_partition(key, 2**31 - 1) for key in VECTORS}
    assert found == {key: (murmur2 & 0x7FFFFFFF) % (2**31 - 1) for key, murmur2 in VECTORS.items()}
