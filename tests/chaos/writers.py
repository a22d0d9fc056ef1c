"""Applications that misbehave: they roll back, dawdle, prepare, copy, commit asynchronously, and survive their server."""

import random
import secrets
import threading
from collections import Counter
from contextlib import suppress

import psycopg

ORDERED_KEYS, FREE_KEYS = 40, 20
BIG_BYTES = (9_000, 24_000)
BURST = """
with free as (select key from aggregate order by key for update skip locked)
insert into outbox.message (topic, key, payload)
select (%(topics)s::text[])[1 + (random() * 1000)::int %% %(count)s], key, 'burst ' || n || md5(random()::text)
from generate_series(1, %(rows)s / (select 1 + count(*) from free)) n, free order by n, key
"""
ENDINGS = {"commit": 60, "asynchronous commit": 14, "rollback": 10, "prepared": 7, "prepared, rolled back": 3, "slow": 6}
WAYS = {"insert": 5, "copy": 2, "savepoints": 3}
COLUMNS = "topic, key, payload, available_at"


def is_ordered(key):
    """Whether the writers lock what this key (bytes) stands for before they insert."""
    return key.startswith(b"locked-")


def set_up(database):
    """The aggregates whose rows are locked."""
    database.execute("create table aggregate (key text primary key)")
    database.execute("insert into aggregate select 'locked-' || i from generate_series(0, %s) i", (ORDERED_KEYS - 1,))


def burst(database, topics, rows):
    """About so many rows in one transaction, over all ordered keys that nobody else holds; whether it was committed."""
    try:
        with database.connect(connect_timeout=5) as connection:
            connection.execute(BURST, {"topics": topics, "count": len(topics), "rows": rows})
        return True
    except psycopg.OperationalError:
        return False


class Writer(threading.Thread):
    """One application, with transactions of its own kind until stop(); connection errors are part of its life."""

    def __init__(self, database, topics, name, seed, pause_s):
        super().__init__(daemon=True, name=name)
        self.database, self.topics, self.pause_s = database, topics, pause_s
        self.rng = random.Random(seed)
        self.figures = Counter()
        self.failure = None
        self._end = threading.Event()
        self._prepared = 0

    def stop(self):
        self._end.set()

    def run(self):
        while not self._end.is_set():
            try:
                with self.database.connect(connect_timeout=5, application_name=self.name) as self.connection:
                    finish_prepared(self.connection, self.name, self.rng)
                    while not self._end.wait(self.rng.random() * 2 * self.pause_s):
                        self.transaction()
            except psycopg.OperationalError:
                self.figures["connections lost"] += 1
                self._end.wait(0.2)
            except Exception as error:
                self.failure = error
                return

    def choose(self, weights):
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def transaction(self):
        ending, way = self.choose(ENDINGS), self.choose(WAYS)
        ordered = self.rng.random() < 0.75
        self.key = f"locked-{self.rng.randrange(ORDERED_KEYS)}" if ordered else \
            self.rng.choice([None, f"free-{self.rng.randrange(FREE_KEYS)}"])
        self.topic = self.rng.choice(self.topics)
        self.connection.execute("begin")
        if ending == "asynchronous commit":
            self.connection.execute("set local synchronous_commit = off")
        if self.rng.random() < 0.3:
            self.connection.execute("select pg_current_xact_id()")
        if ordered:
            self.connection.execute("select from aggregate where key = %s for update", (self.key,))
        getattr(self, way)()
        self.end(ending)
        self.figures[ending] += 1
        self.figures[way] += 1

    # --- what a transaction does ---

    def row(self):
        """Most are small; some are larger than a squeezed topic takes, and only of unordered keys some come later."""
        size = self.rng.randint(*BIG_BYTES) if self.rng.random() < 0.01 else self.rng.randint(20, 400)
        late = self.rng.random() < 0.05 and not (self.key or "").startswith("locked-")
        return self.topic, self.key, secrets.token_urlsafe(size)[:size], "now" if late else None

    def insert(self, most=6):
        for _ in range(self.rng.randint(1, most)):
            self.connection.execute(f"insert into outbox.message ({COLUMNS}) values"
                                    " (%s, %s, %s, %s::timestamptz + random() * interval '4 s')", self.row())

    def copy(self):
        with self.connection.cursor().copy(f"copy outbox.message ({COLUMNS}) from stdin") as copy:
            for _ in range(self.rng.randint(5, 25)):
                copy.write_row(self.row())

    def savepoints(self):
        self.insert(3)
        for _ in range(self.rng.randint(1, 3)):
            self.connection.execute("savepoint s")
            self.insert(3)
            if self.rng.random() < 0.5:
                self.connection.execute("rollback to savepoint s")

    # --- how it ends ---

    def end(self, ending):
        if ending == "slow":
            self.connection.execute("select pg_sleep(%s)", (self.rng.random() * 2,))
        if ending == "rollback":
            self.connection.execute("rollback")
        elif ending.startswith("prepared"):
            self._prepared += 1
            name = f"{self.name} {self._prepared} {'rollback' if 'rolled' in ending else 'commit'}"
            self.connection.execute(f"prepare transaction '{name}'")
            self.connection.execute("select pg_sleep(%s)", (self.rng.random() / 2,))
            self.connection.execute(f"{name.split()[-1]} prepared '{name}'")
        else:
            self.connection.execute("commit")


def finish_prepared(connection, name, rng=None):
    """Ends the transactions that a lost connection left prepared: each as it was meant, or, given rng, either way."""
    for (gid,) in connection.execute("select gid from pg_prepared_xacts where gid like %s", (f"{name} %",)).fetchall():
        with suppress(psycopg.errors.UndefinedObject):
            connection.execute(f"{rng.choice(['commit', 'rollback']) if rng else gid.split()[-1]} prepared '{gid}'")


class Writers:
    """A context manager: so many writers at once."""

    def __init__(self, database, topics, seed, count=5, pause_s=0.12):
        set_up(database)
        self.database = database
        self.all = [Writer(database, topics, f"writer-{n}", f"{seed} {n}", pause_s) for n in range(count)]

    def __enter__(self):
        for writer in self.all:
            writer.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Ends them; afterwards every row is committed or not there."""
        for writer in self.all:
            writer.stop()
        for writer in self.all:
            writer.join(90)
        with self.database.connect() as connection:
            for writer in self.all:
                finish_prepared(connection, writer.name)

    def troubles(self):
        return [f"{w.name}: {w.failure!r}" for w in self.all if w.failure] + \
            [f"{w.name} hangs" for w in self.all if w.is_alive()]

    def figures(self):
        return sum((writer.figures for writer in self.all), Counter())
