"""What is parked stays in its order and out of the others' way: delayed rows, dead topics, and restarts in between."""

from verify import verify

from lib.wait import wait_until

DELAYED = 10_000
DEAD = 50_000


def test_a_delayed_row_holds_nobody_and_goes_after_its_time(outbox, kafka, relay):
    topic = kafka.create_topic()
    relay(outbox.database)
    late = outbox.sql("insert into outbox.message (topic, key, payload, available_at)"
                      " values (%s, 'k', 'late', clock_timestamp() + interval '12 seconds') returning id, available_at", topic)[0]
    past = outbox.insert(topic, key="k", payload="past", available_at="2000-01-01")
    outbox.generate(topic, 50, key="'k'")
    outbox.wait_states({"delayed": 1, "dispatched": 51})
    row = outbox.row(late.id)
    assert (row.attempts, row.error, row.next_attempt_at, row.waits_for_id) == (0, None, late.available_at, None)
    row = outbox.wait_row(late.id, "dispatched")
    assert row.settled_at >= late.available_at
    values = [record.value.decode() for record in kafka.read_all(topic)]
    assert values == ["past", *(f"p{n}" for n in range(1, 51)), "late"]
    assert outbox.row(past.id).state == "dispatched"
    assert outbox.sql("select * from outbox.parked") == []


def test_thousands_of_delayed_rows_wait_together_and_go_in_order(outbox, kafka, relay):
    """Due at the same moment; rows of the same keys that are due at once pass them by."""
    topic = kafka.create_topic(partitions=4)
    running = relay(outbox.database)
    outbox.sql("insert into outbox.message (topic, key, payload, available_at) select %s, 'k' || n %% 50, 'delayed ' || n,"
               " now() + interval '10 seconds' from generate_series(1, %s) n", topic, DELAYED)
    outbox.generate(topic, 1000)
    outbox.wait_dispatched(1000, topic)
    outbox.wait_dispatched(1000 + DELAYED, topic)
    outbox.wait_resolved()
    early = outbox.sql("select count(*)::int as count from outbox.receipt r join outbox.message m using (id)"
                       " where settled_at < available_at")[0].count
    assert early == 0
    verdict = verify(outbox.database, kafka, [topic])
    assert not (verdict.missing or verdict.doubled or verdict.false_receipts or verdict.misplaced), verdict
    delayed_only = [r for r in kafka.read_all(topic) if r.value.startswith(b"delayed")]
    newest = {}
    for record in delayed_only:
        number = int(record.value.split()[1])
        assert newest.get(record.key, 0) < number, f"{record.key}: {number} came after {newest[record.key]}"
        newest[record.key] = number
    assert running.stop() == 0


def test_a_restart_finds_failed_held_and_delayed_rows_as_they_were(outbox, kafka, relay):
    topic, absent = kafka.create_topic(), "created-after-the-restart"
    running = relay(outbox.database, "--retry-initial-ms", "1000")
    first = outbox.insert(absent, key="a", payload="first")
    outbox.generate(absent, 30)
    late = outbox.sql("insert into outbox.message (topic, key, payload, available_at)"
                      " values (%s, 'k', 'late', clock_timestamp() + interval '12 seconds') returning id, available_at", topic)[0]
    absent_partition = outbox.insert(topic, key="waits", payload="x", partition=7)
    outbox.wait_states({"failed": 1, "held": 30}, absent)
    outbox.wait_row(absent_partition.id, "rejected")
    assert running.stop() == 0
    before = outbox.sql("select * from outbox.parked order by id")
    outbox.generate(absent, 10, first=31)
    outbox.generate(topic, 10)
    running = relay(outbox.database)
    outbox.wait_states({"failed": 1, "held": 40}, absent)
    wait_until(lambda: outbox.row(first.id).attempts > before[0].attempts, 60, "another attempt")
    outbox.wait_dispatched(10, topic)
    assert outbox.sql("select distinct waits_for_id from outbox.status where state = 'held'") == [(first.id,)]
    row = outbox.row(first.id)
    assert row.first_error_at == before[0].first_error_at < row.last_error_at
    kafka.create_topic(absent, 2)
    outbox.wait_states({"dispatched": 41}, absent)
    assert outbox.wait_row(late.id, "dispatched").settled_at >= late.available_at
    outbox.wait_states({"dispatched": 11, "rejected": 1}, topic)
    verdict = verify(outbox.database, kafka, [topic, absent])
    assert verdict.missing == [absent_partition.id] and verdict.truthful() and not verdict.doubled, verdict


def test_a_dead_topic_with_thousands_of_rows_drains_in_order_also_through_a_restart(outbox, kafka, relay):
    good, dead = kafka.create_topic(partitions=2), "dead-for-long"
    running = relay(outbox.database, "--retry-max-ms", "2000")
    for first in range(1, DEAD, 10_000):
        outbox.generate(dead, 10_000, first=first, key="'k' || n % 100")
        outbox.generate(good, 100, first=first)
        outbox.wait_dispatched(100 * (first // 10_000 + 1), good)
    parked = "select coalesce(sum(held + failed), 0)::int as count from outbox.lag"
    wait_until(lambda: outbox.sql(parked)[0].count == DEAD, 60, "all of the dead topic parked")
    outbox.sql("analyze")
    assert outbox.states(dead) == {"failed": 1, "held": DEAD - 1}
    kafka.create_topic(dead, 4)
    outbox.wait_dispatched(DEAD // 5, dead)
    assert running.stop() == 0
    left = outbox.sql(parked)[0].count
    assert 0 < left < DEAD, "the relay was stopped too late to be stopped in between"
    outbox.generate(dead, 1000, first=DEAD + 1, key="'k' || n % 100")
    running = relay(outbox.database)
    outbox.generate(good, 100, first=DEAD)
    outbox.wait_dispatched(DEAD + 1000, dead, 120)
    outbox.wait_dispatched(600, good)
    outbox.wait_resolved()
    verdict = verify(outbox.database, kafka, [good, dead])
    print(f"{left} of {DEAD} were left at the restart; {verdict}")
    assert verdict.exactly_once(), verdict


def test_messages_removed_while_they_are_parked_keep_no_other_from_going(outbox, kafka, relay):
    """More than a page of a key's held rows is deleted; what is left goes out when the key is free."""
    topic = kafka.create_topic()
    running = relay(outbox.database, "--batch-rows", "20", "--on-reject", "hold")
    outbox.insert(topic, key="k", payload="x" * 2_000_000)  # rejected: its key waits for a person
    outbox.generate(topic, 100, key="'k'")
    outbox.wait_states({"rejected": 1, "held": 100}, topic)
    first = outbox.sql("select min(id) as id from outbox.parked where state = 'held'")[0].id
    outbox.sql("delete from outbox.message where id between %s and %s", first, first + 59)
    message_id = outbox.sql("select message_id from outbox.parked where state = 'rejected'")[0].message_id
    outbox.sql("select outbox.skip(%s, 'too large')", message_id)
    outbox.wait_dispatched(40, topic)
    outbox.generate(topic, 10, key="'k'")
    outbox.wait_dispatched(50, topic)
    verdict = verify(outbox.database, kafka, [topic])
    assert not (verdict.doubled or verdict.disordered or verdict.false_receipts), verdict
    assert running.running
