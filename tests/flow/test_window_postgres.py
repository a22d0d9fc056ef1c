"""The window's arithmetic against PostgreSQL's own, on snapshots of real transactions that overlap at random."""
import random

from pure import Pure

CONDITION = """
select x::text::bigint
from generate_series(%(first)s::bigint, %(last)s::bigint) n, lateral (select n::text::xid8 as x) as xids
where (x >= pg_snapshot_xmax(%(start)s) or x in (select pg_snapshot_xip(%(start)s)))
  and pg_visible_in_snapshot(x, %(end)s)
order by 1
"""


def test_windows_equal_postgresql_s_condition(database, tmp_path):
    rng, pure = random.Random(4), Pure(tmp_path)
    watcher = database.connect()
    writers = [database.connect() for _ in range(12)]
    watcher.execute("create table t (id int)")
    first = watcher.execute("select pg_current_xact_id()::text::bigint").fetchone()[0]
    snapshots, busy = [], set()
    for _ in range(400):
        number = rng.randrange(len(writers))
        writer = writers[number]
        if number in busy:
            writer.execute(rng.choice(["commit", "rollback"]))
            busy.discard(number)
        else:
            writer.execute("begin")
            writer.execute("insert into t values (1)")
            if rng.random() < 0.5:
                writer.execute("savepoint s")
                writer.execute("insert into t values (2)")
            busy.add(number)
        if rng.random() < 0.3:
            snapshots.append(watcher.execute("select pg_current_snapshot()::text").fetchone()[0])
    last = watcher.execute("select pg_current_xact_id()::text::bigint").fetchone()[0] + 5
    assert max(text.count(",") for text in snapshots) >= 3, "too few transactions overlapped"
    for _ in range(150):
        start, end = sorted(rng.sample(range(len(snapshots)), 2))
        words = {"first": first, "last": last, "start": snapshots[start], "end": snapshots[end]}
        theirs = [row[0] for row in watcher.execute(CONDITION, words).fetchall()]
        assert pure.window(words["start"], words["end"], range(first, last + 1)) == theirs, words
    for connection in (watcher, *writers):
        connection.close()
