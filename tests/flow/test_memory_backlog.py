"""Memory is bounded whatever the backlog: millions of small messages, thousands of large ones, a thousand topics."""

import os
import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic

from lib.wait import wait_until

SMALL = int(os.environ.get("DENPYO_TEST_SMALL_MESSAGES", 2_000_000))
LARGE = int(os.environ.get("DENPYO_TEST_LARGE_MESSAGES", 1_000))
TOPICS = 1_000
DEADLINE_S = 1_500

pytestmark = [pytest.mark.heavy, pytest.mark.measures, pytest.mark.timeout(3_000)]


def peak_mb(running):
    """The most memory that the relay ever had, in MB."""
    with open(f"/proc/{running.pid}/status") as status:
        (kilobytes,) = [line.split()[1] for line in status if line.startswith("VmHWM:")]
    return int(kilobytes) / 1024


def drain(outbox, running, rows, what):
    """Waits for so many receipts and prints what it took."""
    start = time.monotonic()
    count = "select coalesce(sum(count), 0)::bigint as count from outbox.settlement_topic"
    wait_until(lambda: outbox.sql(count)[0].count >= rows, DEADLINE_S, f"{rows} receipts")
    seconds = time.monotonic() - start
    print(f"{what}: {rows / seconds:,.0f} rows/s, peak {peak_mb(running):.0f} MB")
    assert outbox.sql("select id, state, error from outbox.parked limit 3") == []
    return peak_mb(running)


def assert_all_in_the_log(kafka, topics, rows):
    """As many records as rows: none is missing and none twice, for each receipt names another one."""
    consumer = Consumer(kafka.client | {"group.id": "counter"})
    try:
        marks = [consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
                 for topic in topics for partition in range(kafka.partitions(topic))]
    finally:
        consumer.close()
    assert sum(high - low for low, high in marks) == rows


def test_millions_of_small_messages_need_little_memory(outbox, kafka, relay):
    topic = kafka.create_topic(partitions=8)
    for first in range(1, SMALL, 500_000):
        outbox.generate(topic, min(500_000, SMALL - first + 1), first=first, key="'key ' || n % 1000",
                        payload="'order ' || n || ' ' || repeat(md5(n::text), 2)")
    peak = drain(outbox, relay(outbox.database), SMALL, f"{SMALL:,} small messages")
    assert_all_in_the_log(kafka, [topic], SMALL)
    assert peak <= 100


def test_thousands_of_megabyte_messages_need_little_memory(outbox, own_kafka, relay):
    broker = own_kafka({"log.segment.bytes": "104857600", "log.retention.bytes": "209715200"})
    topic = broker.create_topic(partitions=4)
    for first in range(1, LARGE, 100):
        outbox.generate(topic, min(100, LARGE - first + 1), first=first,
                        payload="(select string_agg(md5(n || '-' || i), '') from generate_series(1, 31250) i)")
    peak = drain(outbox, relay(outbox.database, brokers=broker.bootstrap), LARGE, f"{LARGE:,} messages of 1 MB")
    assert outbox.sql("select count(*)::int as count from outbox.receipt")[0].count == LARGE
    assert peak <= 300


def test_a_thousand_topics_need_little_memory_and_all_go(outbox, own_kafka, relay):
    broker = own_kafka()
    names = [f"one-of-many-{n}" for n in range(TOPICS)]
    for first in range(0, TOPICS, 100):
        made = broker.admin.create_topics([NewTopic(name, num_partitions=2) for name in names[first:first + 100]])
        for future in made.values():
            future.result(60)
    wait_until(lambda: set(names) <= broker.topics() and all(broker.partitions(n) == 2 for n in names[-3:]), 120, "all topics")
    for _ in range(20):
        outbox.sql("insert into outbox.message (topic, key, payload) select 'one-of-many-' || n %% %s, 'k' || n, 'p' || n"
                   " from generate_series(1, %s) n", TOPICS, TOPICS * 5)
    peak = drain(outbox, relay(outbox.database, brokers=broker.bootstrap), TOPICS * 100, f"{TOPICS:,} topics")
    assert_all_in_the_log(broker, names, TOPICS * 100)
    assert peak <= 200
