"""The fence: a leader whose time is over commits nothing; a condition on the epoch alone would let it through."""

import re
import threading
from contextlib import closing, contextmanager

import psycopg
import pytest

from lib.devserver import ROOT
from lib.wait import wait_until

OLD, NEW = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
ISOLATIONS = ["read committed", "repeatable read", "serializable"]
BY_CONDITION = """
insert into outbox.settlement (relay, id, topic_names, ids, message_ids, topics, partitions, offsets)
select name, 1, '{}', '{}', '{}', '{}', '{}', '{}' from outbox.relay where name = 'default' and epoch = 1
"""


def query(name):
    """A statement of the relay's own, as psycopg takes it."""
    text = (ROOT / "schemas" / "queries" / f"{name}.sql").read_text().replace("%", "%%").replace(':"schema"', "outbox")
    return re.sub(r"\$(\d)", r"%(p\1)s", text)


def run(connection, name, *values):
    return connection.execute(query(name), {f"p{i}": value for i, value in enumerate(values, 1)})


def fence(connection):
    return run(connection, "fence", "default", 1, OLD, "on", "10000")


def take_over(connection):
    """What a standby does; the epoch it got, or None."""
    row = run(connection, "lease_take", "default", 1, NEW, "new", 10000, "test").fetchone()
    return row and row[0]


def settle(connection):
    connection.execute(BY_CONDITION.replace(" and epoch = 1", ""))


@pytest.fixture
def database(schema_ready):
    """The old leader leads by the ledger, with epoch 1; its lease has run out."""
    schema_ready.execute("insert into outbox.relay (name, epoch, holder, lease_expires_at)"
                         " values ('default', 1, %s, now() - interval '1 second')", (OLD,))
    return schema_ready


@pytest.fixture
def old(database):
    with closing(database.connect()) as connection:
        yield connection


@pytest.fixture
def new(database):
    with closing(database.connect()) as connection:
        yield connection


def begin(connection, isolation="read committed"):
    connection.execute(f"begin isolation level {isolation}")
    connection.execute("select 1")  # the snapshot of a transaction that keeps one


def settlements(database):
    return database.value("select count(*) from outbox.settlement")


@contextmanager
def waiting(database, connection, action):
    """Runs action in a thread and goes on when it waits for a lock; after the block its end is awaited. Yields [] for its answer."""
    answer, pid = [], connection.info.backend_pid

    def act():
        try:
            answer.append(action(connection))
        except psycopg.Error as error:
            answer.append(error)

    thread = threading.Thread(target=act)
    thread.start()
    try:
        wait_until(lambda: database.value("select wait_event_type = 'Lock' from pg_stat_activity where pid = %s", (pid,)), 20,
                   "a wait for a lock")
        assert answer == []
        yield answer
    finally:
        thread.join(20)
        assert not thread.is_alive()


# --- what does not fence ---


def test_a_condition_on_the_epoch_lets_a_stale_leader_commit_after_the_next_epoch(database, old, new):
    begin(old)
    old.execute(BY_CONDITION)
    assert take_over(new) == 2
    assert database.value("select epoch from outbox.relay") == 2, "committed"
    old.execute("commit")
    assert settlements(database) == 1, "the stale leader's settlement came after it"


def test_a_condition_on_the_epoch_lets_a_stale_leader_even_begin_after_the_next_epoch(database, old, new):
    begin(old, "repeatable read")
    assert take_over(new) == 2
    old.execute(BY_CONDITION)
    old.execute("commit")
    assert settlements(database) == 1


# --- what does ---


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_nobody_takes_over_beside_whoever_has_passed_the_fence(database, old, new, isolation):
    """It is refused at once, not kept waiting: an answer that comes when its asker has gone would lead for nobody."""
    new.execute("set lock_timeout = '1s'")
    begin(old, isolation)
    fence(old)
    settle(old)
    assert take_over(new) is None
    assert database.value("select epoch from outbox.relay") == 1
    old.execute("commit")
    assert take_over(new) == 2
    assert settlements(database) == 1, "committed before the next epoch was"


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_nobody_passes_the_fence_after_a_takeover(database, old, new, isolation):
    begin(old, isolation)
    assert take_over(new) == 2
    with pytest.raises((psycopg.errors.DivisionByZero, psycopg.errors.SerializationFailure)) as refused:
        fence(old)
    assert isolation != "read committed" or isinstance(refused.value, psycopg.errors.DivisionByZero)
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        settle(old)
    old.execute("rollback")
    assert settlements(database) == 0


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_the_fence_waits_for_a_takeover_under_way_and_refuses_when_it_commits(database, old, new, isolation):
    begin(new)
    assert take_over(new) == 2
    begin(old, isolation)
    with waiting(database, old, fence) as answer:
        new.execute("commit")
    assert isinstance(answer[0], (psycopg.errors.DivisionByZero, psycopg.errors.SerializationFailure))


def test_the_fence_lets_pass_when_a_takeover_is_rolled_back(database, old, new):
    begin(new)
    assert take_over(new) == 2
    begin(old)
    with waiting(database, old, fence) as answer:
        new.execute("rollback")
    assert answer[0].fetchone()[0] == 1
    settle(old)
    old.execute("commit")
    assert settlements(database) == 1


def test_another_holder_of_the_same_epoch_is_refused(database, old):
    """An asynchronous failover can lose an epoch, which is then given a second time."""
    database.execute("update outbox.relay set holder = %s", (NEW,))
    begin(old)
    with pytest.raises(psycopg.errors.DivisionByZero):
        fence(old)


def test_renewals_and_the_fence_pass_beside_each_other(database, old, new):
    """Neither waits: the lock time-out would end it."""
    database.execute("update outbox.relay set lease_expires_at = now() + interval '1 minute'")
    for connection in (old, new):
        connection.execute("set lock_timeout = '1s'")
    begin(old)
    fence(old)
    assert run(new, "lease_renew", "default", 1, OLD, 10000, None, None).fetchone() == (1,)
    begin(new)
    assert run(new, "lease_renew", "default", 1, OLD, 10000, None, None).fetchone() == (1,)
    settle(old)
    old.execute("commit")
    begin(old)
    fence(old)
    new.execute("commit")
    old.execute("commit")
    assert settlements(database) == 1
