"""Writers that keep an outbox busy while a test breaks something, and what tests ask of the outbox meanwhile."""

import random
import threading

import psycopg

from lib.wait import wait_until

INSERT = """
insert into outbox.message (topic, key, payload)
select %s, %s || (random() * 9)::int, md5(random()::text) || md5(random()::text) from generate_series(1, %s)
"""
UNSETTLED = "select coalesce(sum(pending + delayed + held + requesting + failed + rejected), 0)::bigint from outbox.lag"
DISPATCHED = "select coalesce(sum(count), 0)::bigint from outbox.settlement_topic"


class Load:
    """
    A context manager: writers insert small transactions until it ends, each on keys of its own, so that order per key is
    to be expected. They outlive servers that go away if patient; relaxed ones commit asynchronously.
    """

    def __init__(self, database, topics, writers=4, rows=20, pause_s=0.02, patient=False, relaxed=False):
        self.database, self.topics, self.rows, self.pause_s = database, topics, rows, pause_s
        self.patient, self.relaxed = patient, relaxed
        self.failures = []
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(number,), daemon=True) for number in range(writers)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Ends all writers; what they wrote until then is committed or not there."""
        self._end.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a writer hangs"
        assert not self.failures, self.failures

    def _write(self, number):
        rng, kind = random.Random(number), "relaxed" if self.relaxed else "strict"
        while not self._end.is_set():
            try:
                with self.database.connect(connect_timeout=5) as connection:
                    if self.relaxed:
                        connection.execute("set synchronous_commit = off")
                    while not self._end.wait(rng.random() * 2 * self.pause_s):
                        connection.execute(INSERT, (rng.choice(self.topics), f"{kind} writer {number} key ",
                                                    rng.randint(1, self.rows)))
            except psycopg.OperationalError as error:
                if not self.patient:
                    self.failures.append(error)
                    return
                self._end.wait(0.1)


def insert(database, topic, rows, key="k"):
    """One transaction of so many rows; their ids."""
    return [row for (row,) in database.rows(
        "insert into outbox.message (topic, key, payload) select %s, %s, 'payload ' || i from generate_series(1, %s) i"
        " returning id", (topic, key, rows))]


def dispatched(database):
    """How many messages have a receipt."""
    return database.value(DISPATCHED)


def wait_dispatched(database, more, deadline_s=60):
    """Waits until so many more have a receipt."""
    target = dispatched(database) + more
    wait_until(lambda: dispatched(database) >= target, deadline_s, f"{target} receipts")


def wait_settled(database, deadline_s=120):
    """Waits until every row that is visible has its receipt."""
    with database.connect() as connection:
        wait_until(lambda: connection.execute(UNSETTLED).fetchone()[0] == 0, deadline_s, "the last receipt")
