"""Rows that commit late with low ids: they arrive, they stall nobody, and a page costs the same however much is settled."""

import json
import random
from contextlib import ExitStack

import pytest

from lib.devserver import ROOT
from lib.wait import wait_until
from load import Load, dispatched, insert, wait_dispatched, wait_settled
from verify import verify

SETTLED = 300_000
PAGE = 10
LATE = "insert into outbox.message (topic, key, payload) select %s, %s, 'late' from generate_series(1, %s)"


def test_case_01_a_transaction_open_throughout_stalls_nobody_and_arrives_when_it_commits(
        schema_ready, kafka, relay):
    topic = kafka.create_topic(partitions=4)
    with schema_ready.connect() as late:
        late.execute("begin")
        late.execute(LATE, (topic, "late", 25))
        relay(schema_ready)
        with Load(schema_ready, [topic]):
            wait_dispatched(schema_ready, 2000)
        wait_settled(schema_ready)
        before = verify(schema_ready, kafka, [topic])
        assert before.exactly_once() and before.committed >= 2000, before
        late.execute("commit")
    wait_settled(schema_ready)
    verdict = verify(schema_ready, kafka, [topic])
    print(verdict)
    assert verdict.exactly_once(), verdict
    assert (verdict.committed, verdict.records) == (before.committed + 25, before.records + 25)


def test_case_01_stragglers_in_windows_of_many_pages_are_not_passed_over(schema_ready, kafka, relay):
    """Transactions end in random order around pages of ten rows; the relay dies in the middle of its windows, too."""
    topic, rng, open_ones = kafka.create_topic(partitions=4), random.Random(7), []
    flags = ["--batch-rows", 10, "--inflight-messages", 50]
    with ExitStack() as stack:
        idle = [stack.enter_context(schema_ready.connect()) for _ in range(12)]
        running = relay(schema_ready, *flags)
        for step in range(150):
            if idle and rng.random() < 0.6:
                writer = idle.pop()
                writer.execute("begin")
                writer.execute(LATE, (topic, f"straggler {step}", rng.choice([1, 3, 40])))
                open_ones.append((writer, step))
            if len(open_ones) > 6 or rng.random() < 0.3 and open_ones:
                writer, begun = open_ones.pop(rng.randrange(len(open_ones)))
                writer.execute(LATE, (topic, f"straggler {begun}", rng.choice([1, 25])))
                writer.execute(rng.choice(["commit", "commit", "commit", "rollback"]))
                idle.append(writer)
            insert(schema_ready, topic, rng.choice([1, 5, 60]), f"key {step % 10}")
            if step % 50 == 49:
                running.kill()
                running = relay(schema_ready, *flags)
        for writer, _ in open_ones:
            writer.execute("commit")
        wait_settled(schema_ready)
    verdict = verify(schema_ready, kafka, [topic])
    print(verdict)
    assert verdict.at_least_once(), verdict
    assert verdict.late > 0
    assert schema_ready.value("select count(*) from outbox.batch where not last_page") > 50, "no window had many pages"


def test_an_idle_relay_writes_nothing(schema_ready, kafka, relay):
    """Hundreds of looks at an empty outbox: no batch, no receipt, not even a transaction id; only the lease is renewed."""
    topic = kafka.create_topic()
    insert(schema_ready, topic, 3)
    relay(schema_ready, "--poll-idle-ms", 5, "--lease-ms", 3_600_000)
    wait_settled(schema_ready)
    with schema_ready.connect() as connection:

        def one(query):
            return connection.execute(query).fetchone()

        looks = "select xact_commit from pg_stat_database where datname = current_database()"
        state = "select pg_current_snapshot()::text, (select count(*) from outbox.batch)"
        def changes():
            before, (start,) = one(state), one(looks)
            wait_until(lambda: one(looks)[0] > start + 300, 60, "300 looks")
            return one(state) != before

        assert not all(changes() for _ in range(5)), "autovacuum takes a transaction id now and then, not during each 300 looks"
    assert dispatched(schema_ready) == 3


# --- what a page costs ---


@pytest.fixture(scope="module", params=["none", "of empty tables", "fresh"])
def window(request, postgres, run_denpyo):
    """
    A database with SETTLED old rows, statistics as the parameter says, and a window of two stragglers from before them
    and some fresh rows after them: (database, from, to, stragglers' ids, fresh ids).
    """
    database = postgres.create_database()
    assert run_denpyo("init", "--postgres", database).returncode == 0
    fill = ("insert into outbox.message (topic, key, payload) select 'topic-' || i %% 7, i %% 100, repeat(md5(i::text), 9)"
            " from generate_series(1, %s) i returning id")
    with database.connect() as connection, database.connect() as late, database.connect() as other:
        connection.execute("alter table outbox.message set (autovacuum_enabled = off)")
        connection.execute("insert into outbox.relay (name, epoch, holder) values ('default', 1, %s)", (HOLDER,))
        if request.param == "of empty tables":
            connection.execute("vacuum analyze")
        stragglers = []
        for writer in (late, other):
            writer.execute("begin")
            stragglers += writer.execute(fill, (PAGE,)).fetchall()
        connection.execute(fill, (SETTLED,))
        if request.param == "fresh":
            connection.execute("vacuum analyze")
        before = connection.execute("select pg_current_snapshot()::text").fetchone()[0]
        late.execute("commit")
        other.execute("commit")
        fresh = connection.execute(fill, (3 * PAGE,)).fetchall()
        after = connection.execute("select pg_current_snapshot()::text").fetchone()[0]
    yield database, before, after, [row for (row,) in stragglers], [row for (row,) in fresh]
    database.drop()


HOLDER = "00000000-0000-4000-8000-000000000000"
TYPES = {
    "window_poll": "pg_snapshot, pg_snapshot, bigint",
    "window_first": "pg_snapshot",
    "claim_page": "pg_snapshot, pg_snapshot, bigint, bigint, int, int",
    "claim_mixed": "pg_snapshot, pg_snapshot, bigint, bigint, int, int, xid8[], bigint",
    "load_page": "pg_snapshot, pg_snapshot, bigint, bigint, int, int",
    "claim_parked": "text, bigint[], bigint[], int, int, bigint[]",
    "load_parked": "text, bigint, int",
    "load_cursor": "text",
    "load_open": "text, bigint, bigint",
    "load_holds": "text, bigint, boolean",
    "load_tails": "text, bigint, text[]",
    "claim_parked_next": "text",
    "fence": "text, bigint, uuid, text, text",
    "settings": "bigint",
}


LOOKS = ("window_poll", "window_first", "claim_parked_next", "load_cursor", "load_open", "load_holds", "load_tails")


class Claimant:
    """Runs the relay's own statements as it does: prepared, in a transaction that the fence or the settings of a look have set up."""

    def __init__(self, connection, plans):
        self.connection = connection
        connection.execute(f"set plan_cache_mode = {plans}")
        for name, types in TYPES.items():
            text = (ROOT / "schemas" / "queries" / f"{name}.sql").read_text().replace(':"schema"', "outbox")
            connection.execute(f"prepare {name} ({types}) as {text}")

    def run(self, name, *values, prefix=""):
        words = ", ".join("null" if value is None else f"'{value}'" for value in values)
        with self.connection.transaction():
            if name in LOOKS:
                self.connection.execute("execute settings (10000)")
            else:
                self.connection.execute(f"execute fence ('default', '1', '{HOLDER}', 'on', '10000')")
            return self.connection.execute(f"{prefix} execute {name} ({words})").fetchall()

    def buffers(self, name, *values):
        """Shared buffers touched, found in the cache or read, once the catalog look-ups are warm."""
        for _ in range(2):
            ((answer,),) = self.run(name, *values, prefix="explain (analyze, buffers, format json)")
        (answer,) = answer if isinstance(answer, list) else json.loads(answer)
        assert "JIT" not in answer, f"{name} is compiled"
        plan = answer["Plan"]
        return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


def test_statements_that_were_planned_while_the_table_was_empty_cost_what_is_new(postgres, run_denpyo):
    """A relay that starts with the outbox: looks are right from the first, the rest once the plans are forgotten."""
    database = postgres.create_database()
    assert run_denpyo("init", "--postgres", database).returncode == 0
    with database.connect() as connection:
        connection.execute("alter table outbox.message set (autovacuum_enabled = off)")
        connection.execute("insert into outbox.relay (name, epoch, holder) values ('default', 1, %s)", (HOLDER,))
        connection.execute("vacuum analyze")
        now = lambda: connection.execute("select pg_current_snapshot()::text").fetchone()[0]
        claimant = Claimant(connection, "force_generic_plan")
        looks = lambda before, after: {"window_poll": (before, after, 0), "window_first": (None,), "claim_parked_next": ("default",)}
        pages = lambda before, after, fresh: {
            "claim_page": (before, after, fresh - 1, fresh, PAGE, 10**6), "claim_mixed": (before, after, fresh - 1, fresh, PAGE, 10**6, "{3}", 0),
            "load_page": (before, after, fresh - 1, fresh, 1, 10**6)}
        for name, values in {**looks(now(), now()), **pages(now(), now(), 1)}.items():
            claimant.run(name, *values)
        insert = "insert into outbox.message (topic, payload) select 'orders', repeat(md5(i::text), 9) from generate_series(1, %s) i returning id"
        connection.execute(insert, (SETTLED,))
        before = now()
        ((fresh,),) = connection.execute(insert, (1,)).fetchall()
        after = now()
        assert claimant.run("window_poll", before, after, 0)[0][2:4] == (fresh, fresh)
        costs = {name: claimant.buffers(name, *values) for name, values in looks(before, after).items()}
        connection.execute((ROOT / "schemas" / "queries" / "forget_plans.sql").read_text())
        costs |= {name: claimant.buffers(name, *values) for name, values in pages(before, after, fresh).items()}
    database.drop()
    assert {name: cost for name, cost in costs.items() if cost > 40} == {}


def test_a_relay_forgets_its_plans_now_and_then(schema_ready, postgres, relay):
    with schema_ready.connect() as connection:
        connection.execute(f"alter database {schema_ready.name} set log_statement = 'all'")
    relay(schema_ready)
    wait_until(lambda: postgres.log_text().count("discard plans") >= 3, 60, "plans forgotten again and again")


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
def test_case_16_a_page_costs_what_it_holds_whatever_lies_between(window, plans):
    database, before, after, stragglers, fresh = window
    with database.connect() as connection:
        claimant = Claimant(connection, plans)
        ((upto, _, low, high, late),) = claimant.run("window_poll", before, after, 0)
        assert (upto, low, high) == (after, fresh[0], fresh[-1]) and late.count(",") == 1

        def mixed(begin):
            return "claim_mixed", before, after, max(begin, low - 1), high, PAGE, 10**6, late, begin

        pages, begin = [], 0
        while page := [row[0] for row in claimant.run(*mixed(begin))]:
            pages.append(page)
            begin = page[-1]
        assert sum(pages, []) == stragglers + fresh
        costs = {}
        for n, page in enumerate(pages):
            begin, load = page[0] - 1 if n else 0, ("load_page", before, after)
            costs[f"mixed page {n}"] = claimant.buffers(*mixed(begin))
            assert [row[0] for row in claimant.run(*load, begin, page[-1], len(page), 10**6)] == page
            costs[f"mixed page {n}, loaded"] = claimant.buffers(*load, begin, page[-1], len(page), 10**6)
        assert [row[0] for row in claimant.run("claim_page", before, after, low - 1, high, PAGE, 10**6)] == fresh[:PAGE]
        costs["page"] = claimant.buffers("claim_page", before, after, low - 1, high, PAGE, 10**6)
        costs["poll"] = claimant.buffers("window_poll", before, after, 0)
        costs["poll of nothing"] = claimant.buffers("window_poll", after, after, 0)
        costs["first poll"] = claimant.buffers("window_first", None)
    print(costs)
    limits = {name: 100 if "mixed" in name else 40 for name in costs}
    assert {name: cost for name, cost in costs.items() if cost > limits[name]} == {}


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
def test_parked_rows_cost_what_they_are(window, plans):
    """Rows that are due, and rows that are released, scattered over all that is settled."""
    database, step = window[0], SETTLED // 40
    due, held = range(1, SETTLED, step), range(2, SETTLED, step)
    with database.connect() as connection, connection.transaction(force_rollback=True):
        claimant = Claimant(connection, plans)
        park = ("insert into outbox.parked (id, relay, message_id, topic, state, next_attempt_at, waits_for_id)"
                " select id, 'default', message_id, topic, %s, %s, %s from outbox.message where id = any (%s)")
        connection.execute(park, ("failed", "-infinity", None, list(due)))
        connection.execute(park, ("held", None, 1, list(held)))
        connection.execute("insert into outbox.batch (relay, id, epoch, window_from, window_to, after_id, upto_id, row_count,"
                           " last_page, parked_ids, topic_names, partition_counts)"
                           " values ('default', 1, 1, '1:1:', '1:1:', 0, 0, 10, true, %s, '{}', '{}')", (list(held[:PAGE]),))
        claim, load = ("claim_parked", "default", "{1}", "{}", PAGE, 10**6, "{}"), ("load_parked", "default", 1, 10**6)
        assert [row[0] for row in claimant.run(*claim)] == sorted([*due, *held])[:PAGE]
        assert [row[0] for row in claimant.run(*load)] == list(held[:PAGE])
        costs = {"claim": claimant.buffers(*claim), "load": claimant.buffers(*load)}
    print(costs)
    assert max(costs.values()) < 200


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
def test_parked_ranges_cost_what_a_page_takes_of_them(window, plans):
    """However many wait, and however their ids overlap: the page is the lowest ids of all, and two ranges more are opened."""
    database, step = window[0], SETTLED // 4000
    ranges = [list(range(first, SETTLED, step * 400)) for first in range(5, 400 * step, step)]
    held = [2, SETTLED - 2]
    with database.connect() as connection, connection.transaction(force_rollback=True):
        claimant = Claimant(connection, plans)
        for ids in ranges:
            connection.execute("insert into outbox.parked_range (relay, topic, waits_for_id, ids) values ('default', 't', 1, %s)", (ids,))
        connection.execute("insert into outbox.parked (id, relay, message_id, topic, state, scope, waits_for_id)"
                           " select id, 'default', message_id, topic, 'held', 'topic', 1 from outbox.message where id = any (%s)",
                           (held,))
        claim = ("claim_parked", "default", "{1}", "{}", 25, 10**6, "{1}")
        waiting = sorted(sum(ranges, held))
        ((page, costs),) = [([(row[0], row[-1]) for row in claimant.run(*claim)], claimant.buffers(*claim))]
        print(len(page), costs)
        assert [row for row, _ in page] == waiting[:len(page)] and 1 < len(page) <= 25
        assert costs < 400


BATCHES, TOPICS = 4000, 7


@pytest.fixture(scope="module", params=["none", "of empty tables", "of tables that were smaller", "fresh"])
def history(request, postgres, run_denpyo):
    """Thousands of settled batches of many topics and three open ones, with statistics as said."""
    database = postgres.create_database()
    assert run_denpyo("init", "--postgres", database).returncode == 0
    with database.connect() as connection:
        for table in ("batch", "settlement", "settlement_topic", "parked"):
            connection.execute(f"alter table outbox.{table} set (autovacuum_enabled = off)")
        connection.execute("insert into outbox.relay (name, epoch, holder) values ('default', 1, %s)", (HOLDER,))
        if request.param == "of empty tables":
            connection.execute("vacuum full analyze")
        write_history(connection, 1, 20)
        if request.param == "of tables that were smaller":
            connection.execute("vacuum full analyze outbox.batch")
            connection.execute("vacuum analyze")
        write_history(connection, 21, BATCHES)
        if request.param == "fresh":
            connection.execute("vacuum analyze")
    yield database
    database.drop()


def write_history(connection, first, last):
    """Batches of 200 rows, 200 a second, all but the last three of all settled."""
    names = [f"topic-{number}" for number in range(TOPICS)]
    connection.execute("insert into outbox.batch (relay, id, epoch, window_from, window_to, after_id, upto_id, row_count, last_page,"
                       " topic_names, partition_counts, claimed_at) select 'default', b, 1, '1:1:', '1:1:', 0, 0, 200, true, %s, %s,"
                       " now() + b * interval '5 ms' from generate_series(%s::int, %s) b",
                       (names, [4] * TOPICS, first, last))
    connection.execute("insert into outbox.settlement (relay, id, topic_names, ids, message_ids, topics, partitions, offsets, settled_at)"
                       " select 'default', b, %s, array_agg(b * 200 + i), array_agg(gen_random_uuid()),"
                       " array_agg((i %% 7 + 1)::smallint), array_agg(i %% 4), array_agg(b * 30 + i), now() + b * interval '5 ms'"
                       " from generate_series(%s::int, %s) b, generate_series(1, 200) i group by b order by b",
                       (names, first, min(last, BATCHES - 3)))
    connection.execute("insert into outbox.settlement_topic (relay, batch_id, topic, count, settled_at)"
                       " select 'default', b, topic, 28, now() + b * interval '5 ms'"
                       " from generate_series(%s::int, %s) b, unnest(%s::text[]) topic",
                       (first, min(last, BATCHES - 3), names))


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
def test_case_16_a_term_begins_at_the_cost_of_what_is_open(history, plans):
    """However many batches are settled: the newest receipts of each topic concerned are opened, and no others."""
    topics = "{" + ",".join(f"topic-{number}" for number in range(3)) + "}"
    statements = {"load_cursor": ("default",), "load_open": ("default", BATCHES - 3, BATCHES - 3),
                  "load_holds": ("default", BATCHES - 3, False), "load_tails": ("default", BATCHES - 3, topics)}
    with history.connect() as connection:
        connection.execute("set statement_timeout = '60s'")
        claimant = Claimant(connection, plans)
        starts = claimant.run("load_tails", *statements["load_tails"])
        assert len(starts) == 3 * 4 + 1 and [row[:2] for row in starts if row[0] is None] == [(None, None)]
        costs = {name: claimant.buffers(name, *values) for name, values in statements.items()}
    print(costs)
    assert max(costs.values()) < 400, costs
