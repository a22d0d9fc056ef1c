"""Order per key through failures: nothing of a key overtakes its failed row, however many rows and failures there are."""

import random

from verify import verify

ROWS = 20_000
KEYS = 100
BAD_EVERY = 1000


def write_with_bad_rows(outbox, topic, first, last):
    """Transactions of 1 to 900 rows; one row in a thousand is larger than the topic takes."""
    rng = random.Random(first)
    while first <= last:
        count = min(rng.randint(1, 900), last - first + 1)
        outbox.generate(topic, count, first=first, key=f"'key ' || n % {KEYS}",
                        payload=f"case when n % {BAD_EVERY} = 500 then repeat('x', 3000) else 'payload ' || n end")
        first += count


def test_case_06_no_row_overtakes_a_failed_one_of_its_key(outbox, kafka, relay):
    """A row in a thousand is refused by the broker; another key waits for a partition that is added only later."""
    limited = kafka.create_topic(partitions=4, config={"max.message.bytes": "2000"})
    growing = kafka.create_topic(partitions=2)
    running = relay(outbox.database, "--kafka", "compression.type=none", "--retry-initial-ms", "20000")
    write_with_bad_rows(outbox, limited, 1, ROWS - 2 * BAD_EVERY)
    outbox.wait_dispatched(ROWS // 2, limited)
    first = outbox.insert(growing, key="waits", payload="first", partition=2)
    outbox.generate(growing, 100, key="'waits'", partition="2")
    write_with_bad_rows(outbox, limited, ROWS - 2 * BAD_EVERY + 1, ROWS)
    outbox.generate(growing, 100, key="'waits'", partition="2", first=101)
    outbox.generate(growing, 100, key="'goes on'", partition="1")
    bad = [row.id for row in outbox.sql("select id from outbox.message where octet_length(payload) = 3000 order by id")]
    assert len(bad) == ROWS // BAD_EVERY
    outbox.wait_dispatched(ROWS - len(bad), limited)
    outbox.wait_states({"failed": 1, "held": 200, "dispatched": 100}, growing)
    failed = outbox.row(first.id)
    assert (failed.state, failed.error_code, failed.attempts) == ("failed", "UNKNOWN_PARTITION", 1)
    held = outbox.sql("select distinct waits_for_id, attempts, partition from outbox.status where state = 'held'")
    assert held == [(first.id, 0, 2)]
    kafka.add_partitions(growing, 3)
    outbox.wait_dispatched(301, growing)
    outbox.wait_resolved()
    outbox.sql("analyze")
    assert outbox.states(limited) == {"dispatched": ROWS - len(bad), "rejected": len(bad)}
    assert [row.id for row in outbox.sql("select id from outbox.parked order by id")] == bad, "left over in parked"
    verdict = verify(outbox.database, kafka, [limited, growing])
    print(verdict)
    assert verdict.missing == verdict.unreceipted == bad
    assert verdict.truthful() and not verdict.doubled, verdict
    assert running.stop() == 0


def test_case_06_a_key_goes_on_after_its_rejected_row(outbox, kafka, relay):
    """Rejected with the policy "continue": whoever waited meanwhile is released, in order, and so are rows after a restart."""
    topic = kafka.create_topic(config={"max.message.bytes": "2000"})
    running = relay(outbox.database, "--kafka", "compression.type=none", "--retry-initial-ms", "1000")
    absent = outbox.insert(topic, key="k", payload="no such partition", partition=9)
    outbox.generate(topic, 50, key="'k'")
    outbox.wait_states({"dispatched": 50, "rejected": 1})
    row = outbox.row(absent.id)
    assert (row.error_code, row.attempts) == ("UNKNOWN_PARTITION", 2) and "partition 9" in row.error
    assert running.stop() == 0
    big = outbox.insert(topic, key="k", payload="x" * 3000)
    outbox.generate(topic, 50, key="'k'", first=51)
    relay(outbox.database, "--kafka", "compression.type=none")
    outbox.wait_states({"dispatched": 100, "rejected": 2})
    verdict = verify(outbox.database, kafka, [topic])
    assert verdict.missing == [absent.id, big.id] and verdict.truthful() and not verdict.doubled, verdict
    assert [record.value.decode() for record in kafka.read_all(topic)] == [f"p{n}" for n in range(1, 101)]


def test_only_a_group_in_which_a_key_repeats_is_held_back(outbox, kafka, relay):
    """Each time a partition is held back librdkafka's main thread is asked twice, and waited for: what need not be one set is sent as it comes."""
    topic = kafka.create_topic(partitions=1)
    running = relay(outbox.database, "--kafka", "debug=topic", "--log-level", "debug")
    for n in range(10):
        outbox.generate(topic, 10, first=1 + 10 * n, key="'key ' || n")
        outbox.wait_dispatched(10 * (n + 1), topic)
    assert "facility=PAUSE" not in running.log_text()
    outbox.generate(topic, 10, first=101, key="'the same'")
    outbox.wait_dispatched(110, topic)
    assert "facility=PAUSE" in running.log_text()
    assert verify(outbox.database, kafka, [topic]).exactly_once()
