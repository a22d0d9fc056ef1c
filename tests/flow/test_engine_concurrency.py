"""Sixty writers at once, in every way a transaction can end: each row that committed arrives once, in its key's order."""

import random
import threading
from collections import Counter

import pytest

from lib.wait import wait_until
from load import wait_settled
from verify import verify

WRITERS = 60
ORDERED_KEYS = 150
ENDINGS = {"commit": 66, "asynchronous commit": 10, "rollback": 10, "prepared": 8, "prepared, rolled back": 3, "slow": 3}
WAYS = {"insert": 5, "copy": 2, "savepoints": 3}
INSERT = "insert into outbox.message (topic, key, payload) select %s, %s, %s || i from generate_series(1, %s) i"


class Writer(threading.Thread):
    """
    Commits at least `rows` rows. Whoever writes an ordered key locks its aggregate before it inserts, as the recipe
    says; sometimes the transaction has had its xid for a while by then.
    """

    def __init__(self, database, topics, number, rows):
        super().__init__(daemon=True)
        self.database, self.topics, self.number, self.rows = database, topics, number, rows
        self.rng = random.Random(number)
        self.figures = Counter()
        self.failure = None

    def run(self):
        try:
            with self.database.connect() as self.connection:
                while self.figures["rows committed"] < self.rows:
                    self.transaction()
        except Exception as error:
            self.failure = error

    def choose(self, weights):
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def transaction(self):
        ending = self.choose(ENDINGS)
        ordered = self.rng.random() < 0.8
        self.key = f"{'ordered' if ordered else 'free'}-{self.rng.randrange(ORDERED_KEYS)}"
        self.topic = self.rng.choice(self.topics)
        self.connection.execute("begin")
        if ending == "asynchronous commit":
            self.connection.execute("set local synchronous_commit = off")
        if self.rng.random() < 0.3:
            self.connection.execute("select pg_current_xact_id()")
        if ordered:
            self.connection.execute("select from aggregate where key = %s for update", (self.key,))
        rows = getattr(self, self.choose(WAYS))()
        self.end(ending, rows)

    def insert(self):
        rows = self.rng.randint(1, 12)
        self.connection.execute(INSERT, (self.topic, self.key, f"{self.name} ", rows))
        return rows

    def copy(self):
        rows = self.rng.randint(5, 30)
        with self.connection.cursor().copy("copy outbox.message (topic, key, payload) from stdin") as copy:
            for i in range(rows):
                copy.write_row((self.topic, self.key, f"{self.name} copied {i}"))
        self.figures["copied"] += 1
        return rows

    def savepoints(self):
        rows = self.insert()
        for _ in range(self.rng.randint(1, 3)):
            self.connection.execute("savepoint s")
            more = self.insert()
            if self.rng.random() < 0.5:
                self.connection.execute("rollback to savepoint s")
                self.figures["rows rolled back to a savepoint"] += more
            else:
                rows += more
        return rows

    def end(self, ending, rows):
        name = f"{self.database.name} {self.number}"
        if ending == "slow":
            self.connection.execute("select pg_sleep(%s)", (self.rng.random(),))
        if ending == "rollback":
            self.connection.execute("rollback")
        elif ending.startswith("prepared"):
            self.connection.execute(f"prepare transaction '{name}'")
            self.connection.execute("select pg_sleep(%s)", (self.rng.random() / 20,))
            self.connection.execute(f"{'rollback' if 'rolled' in ending else 'commit'} prepared '{name}'")
        else:
            self.connection.execute("commit")
        self.figures[ending] += 1
        self.figures["rows rolled back" if "roll" in ending else "rows committed"] += rows


@pytest.mark.parametrize("rows", [20_000, pytest.param(100_000, marks=pytest.mark.heavy)])
def test_case_01_sixty_writers_and_no_row_is_lost_invented_doubled_or_overtaken(
        own_postgres, new_database, initialise, kafka, relay, rows):
    database = initialise(new_database(own_postgres(settings={"max_prepared_transactions": WRITERS})))
    database.execute("create table aggregate (key text primary key)")
    database.execute("insert into aggregate select 'ordered-' || i from generate_series(0, %s) i", (ORDERED_KEYS - 1,))
    topics = [kafka.create_topic(partitions=8), kafka.create_topic(partitions=3)]
    running = relay(database)
    writers = [Writer(database, topics, number, rows // WRITERS + 1) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    wait_until(lambda: not any(writer.is_alive() for writer in writers), 280, "the end of the writers")
    assert [writer.failure for writer in writers if writer.failure] == []
    wait_settled(database)
    assert running.stop() == 0
    figures = sum((writer.figures for writer in writers), Counter())
    verdict = verify(database, kafka, topics, lambda key: key.startswith(b"ordered-"))
    print(dict(figures), verdict, sep="\n")
    assert verdict.committed == figures["rows committed"] >= rows
    assert verdict.exactly_once(), verdict
    assert verdict.late > 0, "no id arrived after a higher one: the transactions did not overlap"
    assert all(figures[ending] for ending in ENDINGS), figures
