"""The sweep: a message that was settled without a trace is found, sent in its order and told of; nothing else is touched."""

import json

import pytest

from ledger import Ledger
from lib.devserver import ROOT
from lib.wait import wait_until
from load import Load, insert, wait_dispatched, wait_settled
from verify import verify

FORGET = """
with forgotten as (
    select s.relay, s.id, array_position(s.ids, %s) as at from outbox.settlement s where %s = any (s.ids)
)
update outbox.settlement s
   set ids = s.ids[:at - 1] || s.ids[at + 1:], message_ids = s.message_ids[:at - 1] || s.message_ids[at + 1:],
       topics = s.topics[:at - 1] || s.topics[at + 1:], partitions = s.partitions[:at - 1] || s.partitions[at + 1:],
       offsets = s.offsets[:at - 1] || s.offsets[at + 1:]
  from forgotten f where (s.relay, s.id) = (f.relay, f.id)
"""
EVERY_STATE = "select state, count(*)::int from outbox.status group by state"


def forget(database, row):
    """Takes one message's receipt away: as if the fast path had passed it over."""
    with database.connect() as connection, connection.transaction():  # a sweep may find it right after
        connection.execute(FORGET, (row, row))
        assert connection.execute("select count(*) from outbox.status where id = %s", (row,)).fetchone() == (0,)


@pytest.fixture
def topics(kafka):
    return [kafka.create_topic(partitions=4), kafka.create_topic()]


def test_case_01_what_was_passed_over_is_found_and_sent(schema_ready, kafka, topics, relay):
    running = relay(schema_ready, "--sweep-interval-ms", 200)
    rows = insert(schema_ready, topics[0], 100)
    wait_settled(schema_ready)
    for row in (rows[17], rows[18], rows[60]):
        forget(schema_ready, row)
    found = running.wait_log("the sweep found messages that were settled without a receipt")
    assert " error " in found
    wait_until(lambda: schema_ready.rows(EVERY_STATE) == [("dispatched", 100)], 30, "new receipts")
    records = [record.message_id for record in kafka.read_all(topics[0])]
    again = [message_id for (message_id,) in schema_ready.rows(
        "select message_id::text from outbox.message where id = any (%s) order by id", ([rows[17], rows[18], rows[60]],))]
    assert records[100:] == again, "sent again with their ids, in their order"


def test_under_load_the_sweep_finds_nothing(schema_ready, kafka, topics, relay):
    """Windows unfinished, pages open, rows delayed, failed and held, commits late: none of that was passed over."""
    running = relay(schema_ready, "--sweep-interval-ms", 1, "--log-level", "debug", "--batch-rows", 50)
    with schema_ready.connect() as late:
        late.execute("begin")
        late.execute("insert into outbox.message (topic, key, payload) values (%s, 'late', 'v')", (topics[0],))
        with Load(schema_ready, topics, rows=200):
            for _ in range(5):
                wait_dispatched(schema_ready, 1000)
                insert(schema_ready, "not.there", 10)
                schema_ready.execute("insert into outbox.message (topic, payload, available_at)"
                                     " values (%s, 'v', now() + interval '1 s')", (topics[0],))
        late.execute("commit")
    wait_until(lambda: running.log_text().count("sweep ended") >= 6, 120, "six rounds")
    wait_until(lambda: dict(schema_ready.rows(EVERY_STATE)).keys() == {"dispatched", "failed", "held"}, 60, "all receipts")
    assert "SWEPT" not in running.log_text() and "the sweep found" not in running.log_text()
    assert schema_ready.value("select count(*) from outbox.parked where error_code = 'SWEPT'") == 0
    assert running.stop() == 0
    assert verify(schema_ready, kafka, topics).exactly_once()


def sweep(run_denpyo, database):
    done = run_denpyo("check", "--postgres", database, "--sweep", "--json")
    return done.returncode, {line["check"]: line for line in json.loads(done.stdout)}["sweep"]


def test_check_sweeps_by_hand_and_a_running_relay_sends_what_it_finds(schema_ready, run_denpyo, kafka, topics, relay):
    running = relay(schema_ready, "--sweep-interval-ms", 0)
    rows = insert(schema_ready, topics[0], 6000)
    wait_settled(schema_ready)
    _, line = sweep(run_denpyo, schema_ready)
    assert (line["result"], line["text"].split(":")[0]) == ("OK", "6000 messages")
    for row in (rows[3], rows[5500]):
        forget(schema_ready, row)
    code, line = sweep(run_denpyo, schema_ready)
    assert line["result"] == "FAIL" and code == 1
    assert line["text"].startswith(f"2 of 6000 messages were settled without a receipt (the lowest id is {rows[3]})")
    wait_until(lambda: schema_ready.rows(EVERY_STATE) == [("dispatched", 6000)], 30, "new receipts")
    assert "the sweep found" not in running.log_text()


def test_check_does_not_sweep_unless_asked(schema_ready, run_denpyo):
    done = run_denpyo("check", "--postgres", schema_ready, "--json")
    assert "sweep" not in [line["check"] for line in json.loads(done.stdout)]


# --- against a ledger written by hand: what is not the sweep's business ---


@pytest.fixture
def ledger(schema_ready):
    with schema_ready.connect() as connection:
        yield Ledger(connection)


def found(run_denpyo, database, ledger):
    sweep(run_denpyo, database)
    return [row for (row,) in ledger.sql("select id from outbox.parked where error_code = 'SWEPT' order by id")]


def test_only_rows_of_closed_pages_are_swept(schema_ready, run_denpyo, ledger):
    """An unfinished window: pages 1 (closed), 2 (open); rows 21 … 30 are in no page yet, rows 31 … in no window."""
    insert(schema_ready, "t", 30)
    first, second = ledger.claim(10), ledger.claim(10)
    insert(schema_ready, "t", 10)
    assert found(run_denpyo, schema_ready, ledger) == [], "nothing is closed"
    ledger.settle(first, dispatched=[1, 2, 3, 5, 6, 7, 8], parked={9: "rejected"})
    assert found(run_denpyo, schema_ready, ledger) == [4, 10]
    ledger.settle(second, dispatched=[*range(11, 20)])
    assert found(run_denpyo, schema_ready, ledger) == [4, 10, 20]
    state = ledger.sql("select state, error_code, error, next_attempt_at <= now() from outbox.status where id = 20")
    assert [row[:2] + row[3:] for row in state] == [("failed", "SWEPT", True)]
    assert "neither a receipt nor a reason" in state[0][2]


def test_a_late_commit_is_not_swept_before_its_window_is_closed(schema_ready, run_denpyo, ledger):
    with schema_ready.connect() as late:
        late.execute("begin")
        late.execute("insert into outbox.message (topic, payload) values ('t', 'v')")
        insert(schema_ready, "t", 10)
        ledger.settle(ledger.claim(100))
        late.execute("commit")
    assert found(run_denpyo, schema_ready, ledger) == [], "it is visible, and of the next window"
    batch = ledger.claim(100)
    assert found(run_denpyo, schema_ready, ledger) == [], "its batch is open"
    ledger.settle(batch, dispatched=[])
    assert found(run_denpyo, schema_ready, ledger) == [1]


# --- what a step costs ---

SETTLED, PAGE, STEP = 100_000, 5000, 5000
STEP_AT = "explain (analyze, buffers, format json) execute step ('default', %s, %s, 'found')"


@pytest.mark.parametrize("statistics", ["none", "fresh"])
def test_a_step_costs_what_it_looks_at_whatever_is_settled(schema_ready, ledger, statistics):
    """At the end of SETTLED rows as at their beginning; a straggler that was settled with the last page makes no difference."""
    for table in ("message", "batch", "settlement", "parked"):
        ledger.sql(f"alter table outbox.{table} set (autovacuum_enabled = off)")
    with schema_ready.connect() as late:
        late.execute("begin")
        late.execute("insert into outbox.message (topic, payload) values ('t', 'v')")
        ledger.sql("insert into outbox.message (topic, key, payload) select 't', i %% 100, repeat(md5(i::text), 9)"
                   " from generate_series(1, %s) i", SETTLED)
        ledger.drain(PAGE)
        late.execute("commit")
    insert(schema_ready, "t", 100)
    ledger.drain(PAGE)
    if statistics == "fresh":
        ledger.sql("vacuum analyze")
    step = (ROOT / "schemas/queries/sweep_page.sql").read_text().replace(':"schema"', "outbox")
    for setting in ("enable_seqscan", "enable_bitmapscan", "enable_sort", "jit"):
        ledger.connection.execute(f"set {setting} = off")
    ledger.connection.execute(f"prepare step (text, bigint, int, text) as {step}")
    for after in (0, SETTLED // 2, SETTLED - STEP // 2):
        for _ in range(2):
            ((plan,),) = ledger.connection.execute(STEP_AT % (after, STEP)).fetchall()
        used = plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"]
        assert used < (150 if statistics == "fresh" else 600), f"{used} buffers after {after}"
    assert ledger.sql("select count(*) from outbox.parked") == [(0,)]
