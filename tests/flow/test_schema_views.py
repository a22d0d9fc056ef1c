"""The views tell the truth: status and lag agree with the definitions of the states, whatever order things happened in."""

import datetime
import random
from collections import Counter

import psycopg
import pytest

from ledger import Ledger
from lib.wait import wait_until

WRITERS = 6
PARKED_STATES = ("delayed", "held", "failed", "requesting", "rejected", "skipped")


@pytest.fixture
def outbox(schema_ready):
    with schema_ready.connect() as connection:
        yield connection


@pytest.fixture
def ledger(outbox):
    return Ledger(outbox)


def insert(connection, count=1, topic="orders", **columns):
    """Inserts rows in one statement and returns their ids."""
    names, values = ["topic", "payload", *columns], [topic, "x", *columns.values()]
    rows = connection.execute(
        f"insert into outbox.message ({', '.join(names)}) select {', '.join(['%s'] * len(names))}"
        f" from generate_series(1, {count}) returning id", values).fetchall()
    return [row for (row,) in rows]


def states(connection, where="true"):
    return dict(connection.execute(f"select id, state from outbox.status where {where}").fetchall())


def expected_states(connection, ledger):
    """Every row's state by the definitions, computed row by row from the tables."""
    closed = connection.execute("select coalesce(max(id), 0) from outbox.settlement").fetchone()[0]
    batches = connection.execute("select id, parked_ids from outbox.batch where id > %s", (closed,)).fetchall()
    claimed = {row for batch, parked in batches if parked is None for row in ledger.rows_of(batch)}
    retried = {row for _, parked in batches for row in parked or []}
    dispatched = {row for (row,) in connection.execute("select unnest(ids) from outbox.settlement")}
    parked = dict(connection.execute("select id, state from outbox.parked").fetchall())
    parked.update(connection.execute("select unnest(ids), 'held' from outbox.parked_range").fetchall())

    def state(row, is_delayed):
        if row in parked:
            return "requesting" if row in retried else parked[row]
        if row in claimed:
            return "requesting"
        return "dispatched" if row in dispatched else "delayed" if is_delayed else "pending"

    return {row: state(row, is_delayed) for row, is_delayed in connection.execute(
        "select id, coalesce(available_at > now(), false) from outbox.message")}


def check(connection, ledger):
    """Returns the states that were seen."""
    with connection.transaction():
        connection.execute("set local transaction isolation level repeatable read")
        expected = expected_states(connection, ledger)
        shown = connection.execute("select id, state from outbox.status").fetchall()
        assert len(shown) == len({row for row, _ in shown}), "a row is shown twice"
        assert dict(shown) == expected
        for row in random.sample(sorted(expected), min(10, len(expected))):
            by_message_id = "message_id = (select message_id from outbox.message where id = %d)" % row
            assert states(connection, by_message_id) == {row: expected[row]}
        counts = connection.execute("select sum(pending), sum(delayed), sum(held), sum(requesting), sum(failed),"
                                    " sum(rejected) from outbox.lag").fetchone()
        found = Counter(expected.values())
        names = ("pending", "delayed", "held", "requesting", "failed", "rejected")
        assert [int(count or 0) for count in counts] == [found[name] for name in names]
        return set(found)


class Life:
    """Random writers, some slow, some rolled back, and a relay that claims, settles, parks and tries again."""

    def __init__(self, database, ledger, seed):
        self.random = random.Random(seed)
        self.ledger = ledger
        self.database = database
        self.writers = [psycopg.connect(database.conninfo) for _ in range(WRITERS)]
        self.open = []

    def close(self):
        for writer in self.writers:
            writer.close()

    def step(self):
        steps = {self.write: 8, self.end: 6, self.claim: 4, self.settle: 3, self.park: 1, self.retry: 1, self.release: 1}
        self.random.choices(list(steps), steps.values())[0]()

    def write(self):
        writer = self.random.choice(self.writers)
        later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=self.random.choice((-1, 1)))
        insert(writer, self.random.randint(1, 4), self.random.choice(("orders", "mails")),
               available_at=self.random.choice((None, None, later)))

    def end(self):
        writer = self.random.choice(self.writers)
        self.random.choice((writer.commit, writer.commit, writer.commit, writer.rollback))()

    def claim(self):
        batch = self.ledger.claim(self.random.randint(1, 5))
        self.open += [batch] if batch else []

    def settle(self):
        if not self.open:
            return
        batch = self.open.pop(0)
        retried = self.ledger.sql("select parked_ids is not null from outbox.batch where id = %s", batch)[0][0]
        early = {row for (row,) in self.ledger.sql("select id from outbox.parked")}
        rows = [row for row in self.ledger.rows_of(batch) if retried or row not in early]
        parked = {row: self.random.choice(PARKED_STATES) for row in rows if self.random.random() < 0.3}
        left = [row for row in rows if row not in parked]
        topic = self.random.choice(("orders", "mails", "neither"))
        ranged = {row for (row,) in self.ledger.sql(
            "select id from outbox.message where id = any (%s) and topic = %s and not exists (select from outbox.parked p"
            " where p.id = message.id)", left, topic)} if self.random.random() < 0.5 else set()
        self.ledger.settle(batch, [row for row in left if row not in ranged], parked, ranged=sorted(ranged))

    def park(self):
        """Parks a row before its batch closes, as a row that is to be sent later."""
        rows = self.ledger.sql("select id from outbox.claimed limit 1")
        for (row,) in rows:
            self.ledger.park(row, "delayed")

    def retry(self):
        rows = self.ledger.sql("select id from outbox.parked p where state = 'failed' and not exists ("
                               "select from outbox.open_batch b where p.id = any (b.parked_ids)) limit 2")
        if rows:
            self.open.append(self.ledger.retry([row for (row,) in rows]))


    def release(self):
        """A batch takes some of a range's lowest ids."""
        rows = self.ledger.sql("select id, ids from outbox.parked_range where taken_by is null limit 1")
        for range_id, ids in rows:
            self.open.append(self.ledger.take_range(range_id, ids[:self.random.randint(1, len(ids))]))


@pytest.mark.parametrize("seed", range(3))
def test_status_and_lag_agree_with_the_definitions_at_every_moment(schema_ready, outbox, ledger, seed):
    life = Life(schema_ready, ledger, seed)
    seen = set()
    try:
        for step in range(600):
            life.step()
            if step % 10 == 0:
                seen |= check(outbox, ledger)
    finally:
        life.close()
    assert seen == {"pending", "dispatched", *PARKED_STATES}


def test_before_the_first_batch_everything_is_pending(outbox):
    rows = insert(outbox, 3)
    assert states(outbox) == dict.fromkeys(rows, "pending")
    Ledger(outbox)
    assert states(outbox) == dict.fromkeys(rows, "pending")


def test_a_parked_row_shows_its_reason(outbox, ledger):
    (row,) = insert(outbox, key="k")
    batch = ledger.claim(10)
    ledger.settle(batch, [], {row: "failed"})
    (shown,) = outbox.execute("select state, key, attempts, error_code, error, settled_at from outbox.status").fetchall()
    assert shown == ("failed", "k", 1, "CODE", "reason", None)
    ledger.retry([row])
    assert states(outbox) == {row: "requesting"}


def test_a_parked_row_whose_message_was_deleted_is_still_shown(outbox, ledger):
    (row,) = insert(outbox)
    ledger.settle(ledger.claim(10), [], {row: "rejected"})
    outbox.execute("delete from outbox.message")
    assert states(outbox) == {row: "rejected"}


def test_receipts_and_monthly_counts_outlive_the_payloads(outbox, ledger):
    rows = insert(outbox, 3) + insert(outbox, 2, topic="mails")
    ledger.settle(ledger.claim(3), at="2026-01-31 23:59:59Z")
    ledger.settle(ledger.claim(3), at="2026-02-01 00:00:01Z")
    known = outbox.execute("select message_id, id, topic from outbox.message order by id").fetchall()
    outbox.execute("delete from outbox.message")
    outbox.execute("set timezone to 'Pacific/Auckland'")
    receipts = outbox.execute('select message_id, id, topic, partition, "offset" from outbox.receipt order by id').fetchall()
    assert receipts == [(*message, message[1] % 8, message[1] * 10) for message in known]
    for message_id, row, topic in known:
        for asked in (row, message_id):
            found = outbox.execute("select message_id, id, topic from outbox.receipt_of(%s)", (asked,)).fetchall()
            assert found == [(message_id, row, topic)]
    months = outbox.execute("select month::text, topic, dispatched from outbox.dispatched_by_month order by 1, 2").fetchall()
    assert months == [("2026-01-01", "orders", 3), ("2026-02-01", "mails", 2)]
    assert len(rows) == 5


def test_lag_shows_the_oldest_pending_row_and_the_last_dispatch_of_each_topic(outbox, ledger):
    insert(outbox, 2)
    insert(outbox, 1, topic="mails")
    ledger.drain(10)
    insert(outbox, 2, topic="new")
    rows = outbox.execute("select topic, pending, oldest_pending_at is not null, oldest_pending_seconds >= 0,"
                          " last_dispatched_at is not null from outbox.lag order by topic").fetchall()
    assert rows == [("mails", 0, False, None, True), ("new", 2, True, True, False), ("orders", 0, False, None, True)]


def test_a_topic_with_nothing_but_skipped_rows_is_not_in_lag(outbox, ledger):
    (row,) = insert(outbox)
    ledger.settle(ledger.claim(10), [], {row: "skipped"})
    assert outbox.execute("select * from outbox.lag").fetchall() == []


def test_backlog_estimates_what_lag_counts(outbox, ledger):
    def estimate():
        return outbox.execute("select pending_estimate from outbox.backlog").fetchone()[0]

    assert estimate() == 0
    insert(outbox, 50)
    assert estimate() == 50
    ledger.settle(ledger.claim(20))
    assert estimate() == 30
    ledger.drain(20)
    assert estimate() == 0


def test_stuck_shows_old_requests_old_failures_and_old_prepared_transactions(own_postgres, new_database, initialise):
    database = initialise(new_database(own_postgres(settings={"max_prepared_transactions": 5})))
    with database.connect() as connection:
        ledger = Ledger(connection)
        failed, fresh = insert(connection, 2)
        ledger.settle(ledger.claim(10), [], {failed: "failed", fresh: "failed"})
        (claimed,) = insert(connection)
        ledger.claim(10)
        assert connection.execute("select * from outbox.stuck").fetchall() == []
        connection.execute("update outbox.parked set first_error_at = now() - interval '6 minutes' where id = %s", (failed,))
        connection.execute("update outbox.batch set claimed_at = now() - interval '2 minutes' where id = 2")
        found = connection.execute("select problem, id, topic from outbox.stuck order by 1").fetchall()
        assert found == [("failed", failed, "orders"), ("requesting", claimed, "orders")]
        connection.execute("begin")
        insert(connection)
        connection.execute("prepare transaction 'forgotten'")
        assert [row for row in connection.execute("select problem from outbox.stuck") if row[0].startswith("prepared")] == []
        definition = connection.execute("select pg_get_viewdef('outbox.stuck'::regclass)").fetchone()[0]
        assert "pg_prepared_xacts" in definition
        impatient = definition.replace("'00:05:00'", "'00:00:00'")
        wait_until(lambda: "prepared transaction" in [row[0] for row in connection.execute(impatient)], 10, "the view's third part")
        connection.execute("rollback prepared 'forgotten'")
