"""What a consumer gets is what the application wrote: keys, payloads, tombstones, headers and partitions, byte for byte."""

import json
import random
import re

import pytest
from pure import Pure


@pytest.fixture
def running(schema_ready, relay):
    """A relay on this test's database."""
    return relay(schema_ready)


def deliver(outbox, kafka, topic, **columns):
    """Writes one row, waits for its receipt, and returns it as a consumer sees it."""
    row = outbox.insert(topic, **columns)
    receipt = outbox.wait_row(row.id, "dispatched")
    (record,) = [r for r in kafka.read_all(topic) if r.message_id == str(row.message_id)]
    assert (record.partition, record.offset) == (receipt.partition, receipt.offset)
    return record


BODIES = {
    "text": ({"key": "k", "payload": "p"}, b"k", b"p"),
    "text in several scripts": ({"key": "伝票-ключ", "payload": "é🧾 مرحبا"}, "伝票-ключ".encode(), "é🧾 مرحبا".encode()),
    "bytes that are no text": ({"key_bytes": b"\0\xff\x80", "payload_bytes": b"\xfe\0\\x41"}, b"\0\xff\x80", b"\xfe\0\\x41"),
    "text key, bytes payload": ({"key": "k", "payload_bytes": b"\0"}, b"k", b"\0"),
    "no key": ({"payload": "p"}, None, b"p"),
    "empty text key": ({"key": "", "payload": "p"}, b"", b"p"),
    "empty bytes key": ({"key_bytes": b"", "payload": "p"}, b"", b"p"),
    "empty text payload": ({"key": "k", "payload": ""}, b"k", b""),
    "empty bytes payload": ({"key": "k", "payload_bytes": b""}, b"k", b""),
    "tombstone": ({"key": "k", "tombstone": True}, b"k", None),
    "tombstone of an empty key": ({"key": "", "tombstone": True}, b"", None),
    "a payload that looks like bytea": ({"key": r"\x6b", "payload": r"\x70"}, rb"\x6b", rb"\x70"),
}


def test_keys_and_payloads_arrive_byte_for_byte(outbox, kafka, running):
    topic = kafka.create_topic(partitions=3)
    wrong = []
    for name, (columns, key, value) in BODIES.items():
        record = deliver(outbox, kafka, topic, **columns)
        if (record.key, record.value) != (key, value):
            wrong.append((name, record.key, record.value))
    assert wrong == []


def test_json_with_backslashes_arrives_byte_for_byte(outbox, kafka, running):
    topic = kafka.create_topic()
    text = json.dumps({"path": "C:\\x\\new", "quote": "\"", "escaped": "\u00e9\u2028\\u0000", "slash": "\\\\"}, indent=1)
    assert "\\\\x" in text
    assert deliver(outbox, kafka, topic, key="k", payload=text).value == text.encode()


HEADERS = {
    "none": (None, []),
    "empty object": ({}, []),
    "a string": ({"trace": "abc"}, [("trace", b"abc")]),
    "a null": ({"trace": None}, [("trace", None)]),
    "an empty string": ({"trace": ""}, [("trace", b"")]),
    "unicode": ({"伝票": "é🧾"}, [("伝票", "é🧾".encode())]),
    "escapes": ({'a"\\': '\n\t"\\/\u0001'}, [('a"\\', b'\n\t"\\/\x01')]),
    "other cases of the reserved name": ({"ID": "x", "Id": "y"}, [("ID", b"x"), ("Id", b"y")]),
    "many": ({f"h{n:03}": str(n) for n in range(200)}, [(f"h{n:03}", str(n).encode()) for n in range(200)]),
    "a long one": ({"h": "x" * 100_000}, [("h", b"x" * 100_000)]),
}


def test_the_message_id_is_the_first_header_and_the_rows_own_follow(outbox, kafka, running):
    topic = kafka.create_topic()
    wrong = []
    for name, (headers, own) in HEADERS.items():
        record = deliver(outbox, kafka, topic, payload="p", headers=None if headers is None else json.dumps(headers))
        first, *rest = record.headers
        assert first[0] == "id" and re.fullmatch(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", first[1]), first
        if sorted(rest) != sorted(own):
            wrong.append((name, rest[:5]))
    assert wrong == []


def test_a_message_id_of_the_applications_own_is_sent_in_lower_case(outbox, kafka, running):
    topic = kafka.create_topic()
    record = deliver(outbox, kafka, topic, payload="p", message_id="ABCDEF00-1234-4ABC-8DEF-0123456789AB")
    assert record.headers == [("id", b"abcdef00-1234-4abc-8def-0123456789ab")]


def test_an_explicit_partition_wins_over_the_key(outbox, kafka, running, tmp_path):
    topic = kafka.create_topic(partitions=4)
    by_key = Pure(tmp_path).partition(b"k", 4)
    for partition in range(4):
        assert deliver(outbox, kafka, topic, key="k", payload="p", partition=partition).partition == partition
    assert deliver(outbox, kafka, topic, payload="p", partition=3).partition == 3
    assert deliver(outbox, kafka, topic, key="k", payload="p").partition == by_key


def test_case_22_each_key_goes_where_the_java_client_would_send_it(outbox, kafka, running, tmp_path):
    pure, partitions = Pure(tmp_path), 7
    topic = kafka.create_topic(partitions=partitions)
    rng = random.Random(7)
    keys = [b"", *(rng.randbytes(rng.randrange(1, 60)) for _ in range(500)), *(f"ключ-{n}".encode() for n in range(500))]
    with outbox.connection.cursor().copy("copy outbox.message (topic, key, key_bytes, payload) from stdin") as copy:
        for n, key in enumerate(keys):
            text = key.decode() if key.startswith("ключ".encode()) else None
            copy.write_row((topic, text, None if text else key, str(n)))
    outbox.wait_states({"dispatched": len(keys)})
    found = {int(r.value): (r.key, r.partition) for r in kafka.read_all(topic)}
    assert found == {n: (key, pure.partition(key, partitions)) for n, key in enumerate(keys)}
    assert len({partition for _, partition in found.values()}) == partitions


def test_the_largest_payload_that_a_broker_takes_by_default_arrives(outbox, kafka, running, tmp_path):
    """Bytes that do not compress, at the limit and one beyond: the second is rejected by the broker, alone."""
    topic, limit, rng = kafka.create_topic(), 1_048_588, random.Random(1)
    overhead = Pure(tmp_path).size(b"k", bytes(1_000_000), "{}") - 1_000_000
    million = rng.randbytes(1_000_000)
    largest = rng.randbytes(limit - overhead)
    assert deliver(outbox, kafka, topic, key="k", payload_bytes=million).value == million
    assert deliver(outbox, kafka, topic, key="k", payload_bytes=largest).value == largest
    above = outbox.insert(topic, key="k", payload_bytes=largest + b"+")
    assert "TOO_LARGE" in outbox.wait_row(above.id, "rejected").error_code
