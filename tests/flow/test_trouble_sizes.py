"""A message that can never be accepted is rejected alone, with the reason; its batch mates and its key go on."""

import random

import pytest
from verify import verify


def resident_mb(pid, what="VmHWM"):
    """A process's resident memory in MB: VmHWM is its peak, VmRSS what it has now."""
    with open(f"/proc/{pid}/status") as status:
        (kilobytes,) = [line.split()[1] for line in status if line.startswith(what + ":")]
    return int(kilobytes) / 1024


def assert_only_missing(outbox, kafka, topics, rejected):
    """Everything arrived once and in order, except these."""
    verdict = verify(outbox.database, kafka, topics)
    assert verdict.missing == verdict.unreceipted == sorted(rejected), verdict
    assert verdict.truthful() and not verdict.doubled, verdict


def test_case_05_more_than_the_client_may_send_is_rejected_with_size_and_limit(outbox, kafka, relay):
    topic = kafka.create_topic(partitions=2)
    outbox.generate(topic, 50)
    big = outbox.insert(topic, key="k1", payload="x" * 2_000_000)
    outbox.generate(topic, 50, first=51)
    relay(outbox.database)
    outbox.wait_resolved()
    row = outbox.wait_row(big.id, "rejected")
    assert (row.error_code, row.attempts) == ("MSG_SIZE_TOO_LARGE", 1)
    assert "2000000" in row.error and "1048588" in row.error, row.error
    assert_only_missing(outbox, kafka, [topic], [big.id])


def test_case_05_a_limit_from_the_configuration_counts(outbox, kafka, relay):
    topic = kafka.create_topic(config={"max.message.bytes": "20000000"})
    small = outbox.insert(topic, key="k", payload="x" * 999)
    big = outbox.insert(topic, key="k", payload="x" * 5000)
    running = relay(outbox.database, "--kafka", "message.max.bytes=4000")
    outbox.wait_row(small.id, "dispatched")
    assert "4000" in outbox.wait_row(big.id, "rejected").error
    assert running.stop() == 0
    larger = outbox.insert(topic, key="k", payload_bytes=random.Random(1).randbytes(3_000_000))
    relay(outbox.database, "--kafka", "message.max.bytes=4000000")
    outbox.wait_row(larger.id, "dispatched")


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_case_05_more_than_the_topic_takes_is_rejected_alone(outbox, kafka, relay, compression):
    """The broker refuses the whole set for one record: who is to blame is found out, and nobody else suffers."""
    topic = kafka.create_topic(partitions=2, config={"max.message.bytes": "2000"})
    other = kafka.create_topic()
    rng, bad = random.Random(5), []
    with outbox.connection.transaction():
        for n in range(600):
            is_bad = rng.random() < 0.02
            payload = rng.randbytes(1500).hex() if is_bad else f"p{n}"
            row = outbox.insert(topic, key=f"k{n % 7}", payload=payload)
            bad += [row.id] if is_bad else []
        outbox.generate(other, 100)
    assert len(bad) > 5
    relay(outbox.database, "--kafka", f"compression.type={compression}")
    outbox.wait_resolved()
    assert outbox.states(topic) == {"dispatched": 600 - len(bad), "rejected": len(bad)}
    for row in outbox.sql("select * from outbox.status where state = 'rejected'"):
        assert row.error_code == "MSG_SIZE_TOO_LARGE" and "3000" in row.error and "max.message.bytes" in row.error, row.error
    assert_only_missing(outbox, kafka, [topic, other], bad)


@pytest.mark.measures
def test_a_row_of_200_mb_is_rejected_from_its_length_unread(outbox, kafka, relay):
    topic = kafka.create_topic()
    running = relay(outbox.database)
    outbox.generate(topic, 100)
    outbox.wait_states({"dispatched": 100})
    before = resident_mb(running.pid)
    huge, = outbox.sql("insert into outbox.message (topic, key, payload) select %s, 'k1', repeat(md5('x'), 200000000 / 32)"
                       " returning id", topic)
    outbox.generate(topic, 100, first=101)
    assert "200000000" in outbox.wait_row(huge.id, "rejected").error
    outbox.wait_states({"dispatched": 200, "rejected": 1})
    peak = resident_mb(running.pid)
    print(f"peak before {before:.0f} MB, after a row of 200 MB {peak:.0f} MB")
    assert peak < 60
    assert_only_missing(outbox, kafka, [topic], [huge.id])


def test_case_07_a_null_key_on_a_compacted_topic_is_rejected_and_the_others_go(outbox, kafka, relay):
    topic = kafka.create_topic(config={"cleanup.policy": "compact"})
    outbox.generate(topic, 200, key="case when n % 50 > 0 then 'k' || n % 10 end")
    relay(outbox.database)
    outbox.wait_resolved()
    rejected = outbox.sql("select * from outbox.status where state = 'rejected' order by id")
    assert [row.id for row in rejected] == [50, 100, 150, 200]
    assert {row.error_code for row in rejected} == {"INVALID_RECORD"}
    assert all("no key" in row.error and "compact" in row.error for row in rejected), rejected[0].error
    assert_only_missing(outbox, kafka, [topic], [50, 100, 150, 200])
