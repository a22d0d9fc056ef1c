"""A dead topic parks a record for a batch, not one for a row: exact to the last row, drained in order, through crashes and relapses."""

import signal
from collections import Counter
from contextlib import closing

import pytest
from outbox import Outbox
from test_database_moves import MOVED, restored  # noqa: F401 (a fixture)
from test_exactly_once import Committed
from verify import verify

from lib.wait import wait_until

BLOCK = 10_000
KILLS = 3
SHORT_LEASE = ("--lease-ms", "1500", "--retry-max-ms", "1000")
WAITING = "select coalesce(sum(held + failed + requesting), 0)::int as count from outbox.lag where topic = %s"
RANGES = "select count(*)::int as count, coalesce(sum(row_count), 0)::int as rows from outbox.parked_range"
TAKEN = "select coalesce(sum(row_count), 0)::int as count from outbox.parked_range where taken_by is not null"
AT_WORK = """
select count(*)::int as count from pg_stat_activity
where application_name like 'denpyo%' and datname = current_database() and state = 'active' and wait_event is distinct from 'ClientRead'"""
PLACES = ("outbox.receipt", "outbox.parked", "(select unnest(ids) as id from outbox.parked_range) ranged",
          "outbox.claimed", "outbox.unclaimed")
KEYS = "'k' || n % 100"


def count(outbox, query, *params):
    return outbox.sql(query, *params)[0].count


def waiting(outbox, topic):
    return count(outbox, WAITING, topic)


def wait_parked(outbox, topic, rows, deadline_s=120):
    """Waits until so many rows of the topic are off the straight way and no batch is open."""
    query = ("select (select coalesce(sum(held + failed), 0) from outbox.lag where topic = %s) = %s"
             " and not exists (select from outbox.open_batch) as is_so")
    wait_until(lambda: outbox.sql(query, topic, rows)[0].is_so, deadline_s, f"{rows} parked of {topic}")


def assert_nothing_left(outbox):
    for table in ("parked", "parked_range", "open_batch"):
        assert outbox.sql(f"select * from outbox.{table} limit 3") == [], f"left over in {table}"


def assert_each_in_one_place(outbox):
    """Every message is settled, parked, in a range, claimed or not claimed yet: in one of them, once."""
    with outbox.connection.transaction():
        outbox.sql("set transaction isolation level repeatable read")
        places = [row.id for source in PLACES for row in outbox.sql(f"select id from {source}")]
        messages = [row.id for row in outbox.sql("select id from outbox.message")]
    found = Counter(places)
    assert [number for number in messages if found[number] != 1][:5] == []
    assert len(places) == len(messages), "something is recorded of a message that is not there"


def stopped_with_taken(outbox, running):
    """
    Freezes the relay; lets it go on unless a batch that is open has taken a range then. What it had asked for is done first, but for a
    statement of which it had sent a part.
    """
    running.signal(signal.SIGSTOP)
    wait_until(lambda: count(outbox, AT_WORK) == 0, 20, "the end of what it had asked for")
    if count(outbox, TAKEN) > 0:
        return True
    running.signal(signal.SIGCONT)
    return False


def dumped_with_taken(outbox, running, restored):
    """
    A copy of the outbox, its relay frozen, in which an open batch has taken a range; and how many rows that has, there as here. What the
    server had got from the relay, but not read yet, may settle it until the dump has begun: then the next one is waited for.
    """
    for _ in range(10):
        wait_until(lambda: stopped_with_taken(outbox, running), 60, "a range taken")
        on_the_way = count(outbox, TAKEN)
        copy = restored(outbox.database)
        with closing(Outbox(copy)) as moved:
            if count(moved, TAKEN) == on_the_way > 0:
                return copy, on_the_way
        running.signal(signal.SIGCONT)
    raise AssertionError("each time the dump held another number of rows than was taken before")


def drained(outbox, kafka, topics, deadline_s=180):
    """Waits for the end and returns the verdict."""
    outbox.wait_resolved(deadline_s)
    assert_nothing_left(outbox)
    verdict = verify(outbox.database, kafka, topics)
    print(verdict)
    return verdict


def dead_and_good(outbox, rows, dead, good, block=BLOCK):
    """Transactions that hold rows of both topics; a tenth of them for the good one."""
    for first in range(1, rows + 1, block):
        outbox.sql("insert into outbox.message (topic, key, payload)"
                   f" select case when n %% 11 = 0 then %s else %s end, {KEYS.replace('%', '%%')}, 'p' || n"
                   " from generate_series(%s::int, %s::int) n order by n", good, dead, first, first + block - 1)


@pytest.mark.parametrize("rows", [110_000, pytest.param(1_100_000, marks=[pytest.mark.heavy, pytest.mark.timeout(1800)])])
def test_a_missing_topic_costs_a_record_a_page_and_no_other_topic_anything(outbox, kafka, relay, run_denpyo, rows):
    good, dead = kafka.create_topic(partitions=2), f"missing-{rows}"
    dead_rows = rows - rows // 11
    running = relay(outbox.database, "--retry-max-ms", "1000")
    dead_and_good(outbox, rows, dead, good)
    outbox.wait_dispatched(rows // 11, good, 300)
    wait_parked(outbox, dead, dead_rows, 300)
    ((ranges, ranged),) = outbox.sql(RANGES)
    pages = count(outbox, "select count(*)::int as count from outbox.batch where parked_ids is null")
    parked = count(outbox, "select count(*)::int as count from outbox.parked")
    print(f"{dead_rows} rows parked: {ranges} ranges of {pages} pages, {parked} rows by themselves")
    assert ranges <= pages and parked <= 8 * pages and ranged + parked == dead_rows
    outbox.sql("analyze")
    assert outbox.states(dead) == {"failed": 1, "held": dead_rows - 1}
    lag = outbox.sql("select held, failed, requesting, pending from outbox.lag where topic = %s", dead)[0]
    assert lag in [(dead_rows - 1, 1, 0, 0), (dead_rows - 1, 0, 1, 0)], "the failed one may be on its way"
    assert_each_in_one_place(outbox)
    held = outbox.sql("select min_id + 1 as id from outbox.parked_range order by id desc limit 1")[0]
    row = outbox.row(held.id)
    assert (row.state, row.held_by, row.attempts, row.topic) == ("held", "topic", 0, dead)
    assert row.requested_at is not None and row.settled_at is None
    first = outbox.sql("select id, message_id from outbox.parked order by id limit 1")[0]
    assert row.waits_for_id == first.id
    shown = run_denpyo("show", held.id, "--postgres", outbox.database).stdout
    assert "held" in shown and str(first.id) in shown
    kafka.create_topic(dead, 4)
    verdict = drained(outbox, kafka, [good, dead], 900)
    assert verdict.exactly_once() and verdict.committed == rows, verdict
    assert running.stop() == 0


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_the_relay_is_killed_in_the_outage_and_in_the_drain(outbox, kafka, relay, delivery):
    """What a range holds is known to each new leader, also what a batch had taken of it when the leader died."""
    dead, good = f"killed-often-{delivery}", kafka.create_topic()
    flags = [*SHORT_LEASE, "--batch-rows", "700", "--batch-bytes", "10000000", "--delivery", delivery]
    if delivery == "exactly_once":
        flags += ["--transactional-id", dead]
    written = 0
    for _ in range(3):
        running = relay(outbox.database, *flags)
        dead_and_good(outbox, BLOCK, dead, good, 500)
        written += BLOCK - BLOCK // 11
        wait_until(lambda: waiting(outbox, dead) > written - BLOCK // 2, 60, "most of it parked")
        running.kill()
        assert_each_in_one_place(outbox)
    running = relay(outbox.database, *flags)
    wait_parked(outbox, dead, written)
    running.kill()
    kafka.create_topic(dead, 3)
    for _ in range(KILLS):
        running = relay(outbox.database, *flags)
        wait_until(lambda: stopped_with_taken(outbox, running), 60, "a range taken")
        taken = count(outbox, TAKEN)
        requesting = count(outbox, "select requesting::int as count from outbox.lag where topic = %s", dead)
        running.kill()
        assert requesting >= taken > 0
        assert_each_in_one_place(outbox)
    relay(outbox.database, *flags)
    verdict = drained(outbox, Committed(kafka) if delivery == "exactly_once" else kafka, [dead, good])
    assert verdict.at_least_once(), verdict
    assert not verdict.doubled, "what was on its way was looked up"


def test_a_topic_that_dies_again_in_the_drain_parks_ranges_again(outbox, kafka, relay):
    dead = "relapsing"
    running = relay(outbox.database, "--batch-rows", "1000", "--batch-bytes", "10000000", "--retry-max-ms", "500")
    for first in range(1, 4 * BLOCK, BLOCK):
        outbox.generate(dead, BLOCK, first=first, key=KEYS)
    wait_parked(outbox, dead, 4 * BLOCK)
    for relapse in range(2):
        kafka.create_topic(dead, 2)
        outbox.wait_dispatched(BLOCK // 2 * (relapse + 1) + count(outbox, "select count(*)::int as count from outbox.receipt"),
                               dead)
        kafka.delete_topic(dead)
        outbox.generate(dead, 1000, first=4 * BLOCK + 1000 * relapse + 1, key=KEYS)
        query = "select count(*)::int as count from outbox.status where state = 'failed'"
        wait_until(lambda: count(outbox, query) == 1 and not outbox.sql("select from outbox.open_batch"), 60, "the relapse")
        assert_each_in_one_place(outbox)
        by_themselves = count(outbox, "select count(*)::int as count from outbox.parked")
        assert by_themselves < 100, "what had been in a range is parked row by row"
    gone = {row.id for row in outbox.sql("select id from outbox.receipt")}
    kafka.create_topic(dead, 2)
    verdict = drained(outbox, kafka, [dead])
    assert set(verdict.missing) <= gone and not (verdict.doubled or verdict.disordered or verdict.unreceipted), verdict
    assert count(outbox, "select count(*)::int as count from outbox.receipt") == verdict.committed == 4 * BLOCK + 2000
    assert running.running


def test_rows_in_other_troubles_stand_among_the_rows_of_ranges(outbox, kafka, relay):
    """Rows of the topic that are delayed, too large, or held by their key from before are parked by themselves."""
    topic = kafka.create_topic("troubled-in-many-ways", 2)
    running = relay(outbox.database, "--kafka", "message.max.bytes=100000", "--retry-max-ms", "1000")
    no_partition = outbox.insert(topic, key="k1", payload="waits for a third partition", partition=2)
    outbox.generate(topic, 20, key="'k1'")
    outbox.wait_row(no_partition.id, "rejected")
    outbox.wait_dispatched(20, topic)
    kafka.delete_topic(topic)
    gone = [row.id for row in outbox.sql("select id from outbox.receipt")]
    outbox.generate(topic, 500, first=21, key=KEYS)
    outbox.sql("insert into outbox.message (topic, key, payload, available_at)"
               " select %s, 'late' || n %% 3, case when n %% 50 = 0 then repeat('x', 200000) else 'p' || n end,"
               "        case when n %% 50 = 1 then clock_timestamp() + interval '20 seconds' end"
               "   from generate_series(1, 3000) n order by n", topic)
    delayed = [row.id for row in outbox.sql("select id from outbox.message where available_at is not null")]
    large = [row.id for row in outbox.sql("select id from outbox.message where octet_length(payload) = 200000")]
    expected = {"dispatched": 20, "failed": 1, "held": 3499 - 120, "rejected": 61, "delayed": 60}
    outbox.wait_states(expected, topic)
    ((ranges, rows),) = outbox.sql(RANGES)
    assert ranges > 0 and rows >= expected["held"] - 8 * 10
    assert_each_in_one_place(outbox)
    kafka.create_topic(topic, 2)
    outbox.wait_states({"dispatched": 3520 - 60, "rejected": 61}, topic)
    verdict = verify(outbox.database, kafka, [topic], is_ordered=lambda key: not key.startswith(b"late"))
    assert set(verdict.missing) == {*gone, *large, no_partition.id} and not (verdict.doubled or verdict.disordered), verdict
    newest = {}
    known = {row.message_id: row.id for row in outbox.sql("select message_id::text, id from outbox.message")}
    for record in kafka.read_all(topic):
        number = known[record.message_id]
        if number not in delayed:
            assert newest.get(record.key, 0) < number, f"{record.key}: {number} came after {newest[record.key]}"
            newest[record.key] = number
    assert delayed and running.running


def test_rows_that_commit_late_make_ranges_overlap_and_are_drained_in_their_order(outbox, kafka, relay):
    dead = "with-stragglers"
    running = relay(outbox.database, "--batch-rows", "400", "--batch-bytes", "10000000")
    late = []
    for turn in range(8):
        late.append(outbox.database.connect())
        late[-1].execute("begin")
        late[-1].execute("insert into outbox.message (topic, key, payload) select %s, 'late ' || %s::int, n from generate_series(1, 30) n",
                         (dead, turn))
        outbox.generate(dead, 1000, key=KEYS)
        if turn % 3 == 2:
            late.pop(0).execute("commit")
    for writer in late:
        wait_parked(outbox, dead, count(outbox, "select count(*)::int as count from outbox.message"))
        writer.execute("commit")
        outbox.generate(dead, 300, key=KEYS)
    wait_parked(outbox, dead, 8 * 1030 + 300 * len(late))
    overlapping = count(outbox, "select count(*)::int as count from outbox.parked_range a join outbox.parked_range b"
                                " on a.id < b.id and b.min_id < a.max_id")
    assert overlapping > 0
    assert_each_in_one_place(outbox)
    kafka.create_topic(dead, 2)
    assert drained(outbox, kafka, [dead]).exactly_once()
    assert running.running


def test_who_decides_about_a_row_in_a_range_is_told_what_it_waits_for(outbox, kafka, relay, run_denpyo):
    dead = "decided"
    first = outbox.insert(dead, key="a", payload="first")
    running = relay(outbox.database, "--retry-initial-ms", "3600000", "--retry-max-ms", "3600000", "--batch-rows", "300")
    outbox.wait_row(first.id, "failed")
    outbox.generate(dead, 1000, key=KEYS)
    wait_parked(outbox, dead, 1001)
    held = outbox.sql("select min_id as id from outbox.parked_range limit 1")[0]
    for command in (["retry"], ["skip", "--reason", "no more"]):
        done = run_denpyo(command[0], held.id, *command[1:], "--postgres", outbox.database)
        assert done.returncode != 0 and str(first.message_id) in done.stderr, done.stderr
    assert outbox.row(held.id).state == "held"
    outbox.sql("select outbox.skip(%s, 'not wanted')", first.message_id)
    wait_until(lambda: outbox.states(dead) == {"skipped": 1, "failed": 1, "held": 999}, 60, "the next one to hold the others")
    second = outbox.sql("select id, message_id from outbox.status where state = 'failed'")[0]
    assert second.id == held.id, "the lowest of the range is tried next"
    assert outbox.sql("select distinct waits_for_id as id from outbox.status where state = 'held'") == [(second.id,)]
    assert_each_in_one_place(outbox)
    kafka.create_topic(dead, 2)
    outbox.sql("select outbox.retry(%s)", second.message_id)
    outbox.wait_states({"skipped": 1, "dispatched": 1000}, dead)
    assert outbox.sql("select * from outbox.parked_range") == []
    verdict = verify(outbox.database, kafka, [dead])
    assert verdict.missing == [first.id] and verdict.truthful() and not verdict.doubled, verdict
    assert running.running


def test_messages_removed_from_ranges_keep_no_other_from_going(outbox, kafka, relay):
    """More than a page of a topic's oldest rows is deleted while they wait; what is left goes out."""
    dead = "pruned"
    running = relay(outbox.database, "--batch-rows", "300", "--batch-bytes", "10000000", "--retry-max-ms", "1000")
    outbox.generate(dead, 5000, key=KEYS)
    wait_parked(outbox, dead, 5000)
    outbox.sql("delete from outbox.message where id between 100 and 3000 or id % 7 = 3 and id > 1 or id > 4800")
    left = count(outbox, "select count(*)::int as count from outbox.message")
    kafka.create_topic(dead, 2)
    outbox.wait_dispatched(left, dead)
    running.wait_log("held rows vanished")
    verdict = verify(outbox.database, kafka, [dead])
    assert verdict.exactly_once() and verdict.committed == left, verdict
    outbox.generate(dead, 100, key=KEYS)
    outbox.wait_dispatched(left + 100, dead)


def test_ranges_survive_a_dump_and_are_sent_once(outbox, restored, kafka, relay, run_denpyo):  # noqa: F811
    """Another cluster's ranges: some wait, one was taken by a batch that was open when the dump was made."""
    dead = "moved"
    flags = ("--batch-rows", "200", "--batch-bytes", "10000000", *SHORT_LEASE)
    running = relay(outbox.database, *flags)
    for first in range(1, 20_000, 1000):
        outbox.generate(dead, 1000, first=first, key=KEYS)
    wait_parked(outbox, dead, 20_000)
    kafka.create_topic(dead, 2)
    outbox.wait_dispatched(2000, dead)
    copy, on_the_way = dumped_with_taken(outbox, running, restored)
    running.kill()
    with copy.connect() as operator:
        operator.execute("update outbox.relay set lease_expires_at = now()")
    with closing(Outbox(copy)) as moved:
        running = relay(copy, *flags)
        running.wait_log(MOVED)
        running.wait_log("the outbox's past is closed")
        moved.wait_resolved()
        assert_nothing_left(moved)
        verdict = verify(copy, kafka, [dead])
        print(verdict)
        assert verdict.at_least_once() and len(verdict.doubled) <= on_the_way, verdict
    swept = run_denpyo("check", "--postgres", copy, "--brokers", kafka.bootstrap, "--sweep").stdout
    assert "what is settled has a receipt or a reason" in swept


def test_the_sweep_finds_every_row_of_a_range_accounted_for(outbox, kafka, relay, run_denpyo):
    dead = "swept"
    running = relay(outbox.database)
    outbox.generate(dead, 3000, key=KEYS)
    wait_parked(outbox, dead, 3000)
    swept = run_denpyo("check", "--postgres", outbox.database, "--brokers", kafka.bootstrap, "--sweep").stdout
    assert "what is settled has a receipt or a reason" in swept
    assert outbox.sql("select id from outbox.parked where error_code = 'SWEPT'") == []
    assert running.stop() == 0
