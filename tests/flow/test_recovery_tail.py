"""After a crash a long tail is read fast: what arrived is found among all that others wrote since."""

import re

import pytest
from confluent_kafka import Producer
from ledger import Ledger
from verify import java_partition

PARTITIONS, OPEN = 4, 2000


def fill(kafka, topic, records, arrived):
    """Records of other programs, and among them, in their order, the copies of messages that a dead relay had sent."""
    failures = []
    producer = Producer({**kafka.client, "compression.type": "lz4", "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    filler = b"x" * 100
    step = max(1, records // len(arrived))
    waiting = iter(arrived)
    for number in range(records):
        if number % step == 0 and (row := next(waiting, None)):
            producer.produce(topic, row.payload, row.key, headers=[("id", str(row.message_id))],
                             partition=java_partition(row.key.encode(), PARTITIONS),
                             on_delivery=lambda error, _: failures.append(error) if error else None)
        producer.produce(topic, filler, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0 and not failures


@pytest.mark.parametrize("records", [20_000, pytest.param(1_000_000, marks=pytest.mark.heavy)])
def test_what_arrived_is_found_in_a_long_tail(outbox, kafka, relay, records):
    topic = kafka.create_topic(partitions=PARTITIONS)
    outbox.generate(topic, OPEN, key="'k' || n % 100")
    assert Ledger(outbox.connection).claim(OPEN) == 1
    rows = outbox.sql("select id, message_id, key, payload from outbox.message order by id")
    fill(kafka, topic, records, rows[:OPEN // 2])
    outbox.generate(topic, 10, first=OPEN + 1)
    running = relay(outbox.database, brokers=kafka.bootstrap)
    running.wait_log("looked up what arrived", 120)
    outbox.wait_states({"dispatched": OPEN + 10})
    (line,) = [line for line in running.log_text().splitlines() if "looked up what arrived" in line]
    found = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", line)}
    assert found["messages"] == OPEN and found["arrived"] == OPEN // 2 and found["to_send"] == OPEN // 2, line
    assert found["records_read"] >= records
    print(f"{found['records_read']} records in {found['ms']} ms: {found['records_read'] / found['ms']:.0f} a millisecond")
    copies = [record.message_id for record in kafka.read_all(topic) if any(name == "id" for name, _ in record.headers)]
    assert len(copies) == len(set(copies)) == OPEN + 10
