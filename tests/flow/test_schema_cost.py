"""What a question costs, in buffers: it follows what is unsettled, not what is settled, whatever the statistics say."""

import json

import pytest

from ledger import Ledger

SETTLED = 300_000
PAGE = 5000
FEW = 50
STATISTICS = ("none", "of empty tables", "fresh")


@pytest.fixture(scope="module", params=STATISTICS)
def settled(request, postgres, run_denpyo):
    """A database with SETTLED settled rows, statistics as the parameter says, and a ledger at its end."""
    database = postgres.create_database()
    done = run_denpyo("init", "--postgres", database)
    assert done.returncode == 0, done.stderr
    connection = database.connect()
    for table in ("message", "batch", "settlement", "settlement_topic", "parked", "parked_range", "relay"):
        connection.execute(f"alter table outbox.{table} set (autovacuum_enabled = off)")
    if request.param == "of empty tables":
        connection.execute("vacuum analyze")
    ledger = Ledger(connection)
    for _ in range(3):
        connection.execute(
            "insert into outbox.message (topic, key, payload) select 'topic-' || i %% 7, i %% 100, repeat(md5(i::text), 9)"
            " from generate_series(1, %s) i", (SETTLED // 3,))
        ledger.drain(PAGE)
    if request.param == "fresh":
        connection.execute("vacuum analyze")
    yield database, ledger
    connection.close()
    database.drop()


def buffers(connection, query):
    """Shared buffers that a query touches, found in the cache or read, once its catalog look-ups are warm."""
    for _ in range(2):
        ((answer,),) = connection.execute("explain (analyze, buffers, format json) " + query).fetchall()
    plan = answer if isinstance(answer, list) else json.loads(answer)
    return plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"]


def costs(connection, limits):
    """Asserts each query's limit; tells all that exceed theirs."""
    found = {query: buffers(connection, query) for query in limits}
    assert {query: count for query, count in found.items() if count > limits[query]} == {}


def by_message_id(connection, row):
    ((message_id,),) = connection.execute("select message_id from outbox.message where id = %s", (row,)).fetchall()
    return f"select * from outbox.status where message_id = '{message_id}'"


TROUBLE = "select * from outbox.status where state in ('failed', 'requesting')"
LAG = "select * from outbox.lag"
BACKLOG = "select * from outbox.backlog"


@pytest.fixture
def statistics(request, settled):
    return request.node.callspec.params["settled"]


@pytest.fixture
def connection(settled):
    """A connection in a transaction that is rolled back: each test finds the ledger as the first did."""
    database, ledger = settled
    with database.connect() as fresh:
        fresh.execute("begin")
        yield fresh
        fresh.execute("rollback")


@pytest.fixture
def ledger(connection, settled):
    again = Ledger.__new__(Ledger)
    again.connection, again.name = connection, settled[1].name
    return again


def insert_few(settled, count=FEW):
    """Rows of a transaction of their own, committed: a window sees no row of the transaction that claims."""
    database, _ = settled
    rows = database.rows("insert into outbox.message (topic, payload) select 'topic-1', 'x'"
                         f" from generate_series(1, {count}) returning id")
    return [row for (row,) in rows]


def test_the_settled_rows_are_there(settled):
    database, _ = settled
    assert database.value("select sum(count) from outbox.settlement_topic") >= SETTLED - 1


def test_looking_up_a_settled_message_takes_a_few_index_look_ups(connection):
    costs(connection, {
        by_message_id(connection, SETTLED // 2): 120,
        f"select * from outbox.status where id = {SETTLED // 2}": 120,
        f"select * from outbox.receipt_of({SETTLED // 2})": 80,
    })


def test_receipts_are_read_one_by_one(connection):
    """Not written away first, all of a settlement's, as a function in FROM does."""
    for query in (f"select * from outbox.status where id = {SETTLED // 2}", "select * from outbox.receipt"):
        plan = "\n".join(line for (line,) in connection.execute("explain (verbose) " + query).fetchall())
        assert "ProjectSet" in plan and "Function Call: unnest(s" not in plan, plan


def test_looking_up_a_record_by_its_offset_takes_a_few_index_look_ups(connection):
    ((topic, place),) = connection.execute("select topic, format('%%s, %%s', id %% 8, id * 10) from outbox.message where id = %s",
                                           (SETTLED // 2,)).fetchall()
    query = f"select * from outbox.receipt_at('{topic}', {place})"
    assert connection.execute(query).rowcount == 1
    costs(connection, {query: 120})


def test_questions_about_nothing_unsettled_cost_nothing(connection):
    costs(connection, {TROUBLE: 40, LAG: 120, BACKLOG: 40, "select * from outbox.stuck": 80,
                       "select * from outbox.status where state = 'pending'": 40})


def test_a_few_pending_rows_cost_a_few_buffers(settled, connection):
    rows = insert_few(settled)
    costs(connection, {LAG: 150, BACKLOG: 40, TROUBLE: 40, by_message_id(connection, rows[0]): 120,
                       "select * from outbox.status where state = 'pending'": 80})


WATCHED = [f"select * from outbox.status where state = '{state}'" for state in
           ("pending", "delayed", "requesting", "held", "failed", "rejected", "skipped")] + [
    LAG, BACKLOG, "select * from outbox.stuck", "select * from outbox.status where state = 'dispatched' limit 100",
    "select * from outbox.status where state = 'dispatched' and topic = 'topic-1' limit 100"]


def test_what_is_watched_is_not_compiled_first_however_many_rows_there_are(settled, connection, statistics):
    """Compiling (jit_above_cost) takes hundreds of milliseconds; the planner is told of three hundred million rows."""
    if statistics != "fresh":
        pytest.skip("a table of that size has statistics")
    connection.execute("update pg_class c set reltuples = 3e8, relpages = greatest(1, pg_relation_size(c.oid) / 8192)"
                       " where c.oid = 'outbox.message'::regclass or c.oid in"
                       " (select indexrelid from pg_index where indrelid = 'outbox.message'::regclass)")
    connection.execute("update pg_class set reltuples = 30000 where oid = 'outbox.settlement'::regclass")  # of 10,000 messages each
    plans = {query: connection.execute("explain (format json) " + query).fetchone()[0][0]["Plan"] for query in WATCHED}
    assert {query: plan["Total Cost"] for query, plan in plans.items() if plan["Total Cost"] > 100_000} == {}


def test_open_batches_and_parked_rows_cost_what_they_hold(settled, connection, ledger):
    rows = insert_few(settled)
    while (batch := ledger.claim(FEW)) is not None:
        last = batch
        for row in ledger.rows_of(batch)[:2] if batch == last else []:
            ledger.park(row, "failed")
    assert connection.execute("select count(*) from outbox.status where state in ('failed', 'requesting')"
                              ).fetchone()[0] >= FEW
    costs(connection, {TROUBLE: 400, LAG: 500, by_message_id(connection, rows[-1]): 150,
                       by_message_id(connection, SETTLED // 2): 150})


def test_parked_ranges_cost_what_they_hold(settled, connection, ledger):
    """Their rows lie among all that is settled; what is asked about others does not open them."""
    step = SETTLED // 200
    for first in range(1, 21):
        ledger.park_range(list(range(first * step, (first + 1) * step, step // 20))[:20])
    ((held,),) = connection.execute("select count(*) from outbox.status where state = 'held'").fetchall()
    assert held == 400
    costs(connection, {TROUBLE: 60, LAG: 150, by_message_id(connection, SETTLED // 2): 120,
                       by_message_id(connection, 10 * step): 120,
                       "select * from outbox.status where state = 'held'": 2500})
    ledger.take_range(1, ledger.sql("select ids[:5] from outbox.parked_range where id = 1")[0][0])
    costs(connection, {TROUBLE: 200, LAG: 250})


def test_a_late_commit_with_a_low_id_does_not_make_a_page_walk_over_what_is_settled(settled, connection, ledger):
    """The page's ids then span everything; also while its window is half claimed."""
    late, other = settled[0].connect(), Ledger.__new__(Ledger)
    late.execute("begin")
    late.execute("insert into outbox.message (topic, payload) values ('topic-1', 'late')")
    other.connection, other.name = settled[0].connect(), ledger.name
    try:
        other.sql("insert into outbox.message (topic, payload) select 'topic-2', 'x' from generate_series(1, 20000)")
        other.drain(PAGE)
        late.execute("commit")
        insert_few(settled)
        assert ledger.claim(10) is not None
        costs(connection, {TROUBLE: 150, LAG: 250, BACKLOG: 60})
        assert ledger.claim(10) is not None
        costs(connection, {TROUBLE: 150, LAG: 250, BACKLOG: 60})
    finally:
        late.close()
        other.connection.close()


def test_the_end_of_a_huge_window_costs_its_last_page(settled, connection, ledger):
    """A backlog of one window: when most of it is settled, what is left is found from where the pages stand."""
    insert_few(settled, 20_000)
    while (batch := ledger.claim(PAGE)) is not None:
        left = connection.execute("select count(*) from outbox.unclaimed").fetchone()[0]
        if left <= PAGE:
            break
        ledger.settle(batch)
    ((upto,),) = connection.execute("select upto_id from outbox.progress").fetchall()
    assert upto > SETTLED
    pages = connection.execute("select count(distinct (ctid::text::point)[0]) from outbox.message where id > %s",
                               (upto - PAGE,)).fetchone()[0]
    costs(connection, {LAG: pages * 2 + 250})


def test_the_first_of_many_pending_rows_cost_no_more_than_they_are(settled, connection, statistics):
    """A bitmap of all that waits would have to be built before the first."""
    if statistics != "fresh":
        pytest.skip("only statistics tell that ids follow one another on the disk")
    insert_few(settled, 50_000)
    costs(connection, {"select * from outbox.status where state = 'pending' limit 100": 60})


DELAYED = "select * from outbox.status where state = 'delayed'"


def insert_later(settled, count):
    """Rows for tomorrow; their ids."""
    database, _ = settled
    rows = database.rows("insert into outbox.message (topic, payload, available_at) select 'topic-1', 'x', now() + interval '1 day'"
                         f" from generate_series(1, {count}) returning id")
    return [row for (row,) in rows]


def test_what_is_for_later_costs_itself_whatever_else_waits(settled, connection, ledger):
    insert_few(settled, 20_000)
    rows = insert_later(settled, 10)
    found = {DELAYED: 100, DELAYED + f" and id = {rows[0]}": 100}
    assert len(connection.execute(DELAYED).fetchall()) == 10
    costs(connection, found)
    assert ledger.claim(PAGE) is not None  # a window that is not finished
    assert len(connection.execute(DELAYED).fetchall()) == 10
    costs(connection, found)


def test_the_first_of_what_is_for_later_and_parked_cost_no_more_than_they_are(settled, connection, ledger):
    rows = insert_later(settled, 3000)
    batch = ledger.claim_all()
    ledger.settle(batch, [], {row: "delayed" for row in rows})
    connection.execute("analyze outbox.parked")
    assert len(connection.execute(DELAYED).fetchall()) == 3000
    costs(connection, {DELAYED + " limit 10": 150})
