"""What the benchmark's parts stand on: the servers, the seeded databases, and one drain, latency or check at a time."""
import contextlib
import os
import pathlib
import random
import socket
import statistics
import subprocess

import helpers
import pipe
import relay
from servers import LOGICAL, ROOT, Kafka, Postgres

HERE = pathlib.Path(__file__).resolve().parent
KEYS, ROWS_PER_TRANSACTION, TOPIC = 100_000, 100, "orders"
MOST_WARM_UPS = 6
INSERT = "insert into outbox.message (topic, key, payload) values ($1, $2, $3) returning id"


def say(text):
    print(text, flush=True)


def free_port(count=1):
    """The first of `count` ports in a row that nobody listens on, below those that the kernel hands to outgoing connections."""
    while True:
        port = random.randrange(15000, 32000)
        try:
            with contextlib.ExitStack() as held:
                for n in range(count):
                    held.enter_context(socket.create_server(("127.0.0.1", port + n)))
            return port
        except OSError:
            continue


def spread(values):
    """What a table shows of several measurements."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "all": list(values)}


class Stage:
    """Servers start when a part first wants them; a part leaves nothing behind but databases under its own names."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.helpers = helpers.build_helpers(folder)
        self.binary = options.binary or helpers.build_relay(ROOT / "build-bench")
        self.kafka = Kafka(folder, free_port(2))
        self._postgres, self._logical = None, None
        self.warmed = False

    @property
    def postgres(self):
        """The server of every part but the rivals'."""
        self._postgres = self._postgres or Postgres(self.folder / "postgres", free_port())
        return self._postgres

    @property
    def logical(self):
        """A server whose WAL can be read by rivals that do so."""
        self._logical = self._logical or Postgres(self.folder / "postgres-logical", free_port(), LOGICAL)
        return self._logical

    def scaled(self, rows):
        """So many rows, or the share of them that --scale asks for."""
        return max(1000, round(rows * self.options.scale))

    # --- databases ---

    def seed(self, name, rows, postgres=None, keys=KEYS, per_transaction=ROWS_PER_TRANSACTION, topic=TOPIC, topics=1, size=None):
        """A database with so many rows; kept for the next one who asks for the same."""
        postgres = postgres or self.postgres
        if postgres.exists(name):
            return
        say(f"seeding {rows:,} rows: {name}")
        building = f"{name}_building"
        postgres.drop(building)
        postgres.admin.execute(f"create database {building}")
        subprocess.run([self.binary, "init", "--postgres", postgres.conninfo(building)], check=True, stdout=subprocess.DEVNULL)
        with postgres.connect(building) as db:
            db.execute((HERE / "seed.sql").read_text())
            self.add_rows(db, rows, keys=keys, per_transaction=per_transaction, topic=topic, topics=topics, size=size)
            db.execute("vacuum (analyze)")
        postgres.admin.execute(f"alter database {building} rename to {name}")

    @staticmethod
    def add_rows(db, rows, first=1, keys=KEYS, per_transaction=ROWS_PER_TRANSACTION, topic=TOPIC, topics=1, size=None):
        db.execute(f"call bench.seed({rows}, {keys}, {per_transaction}, '{topic}', {first}, {topics}, {size or 'null'})")

    # --- one measurement each; the topic is checked against the table after every one ---

    def verify(self, postgres, database, topic, rows, ids=True, topics=0):
        return helpers.verify(self.helpers, postgres.conninfo(database), self.kafka.brokers, topic, topics, rows, ids)

    def pipe(self, database, rows, arguments=()):
        self.kafka.fresh_topic("pipe")
        figures = pipe.run_pipe(self.postgres, self.kafka, database, "pipe", rows, arguments)
        self.verify(self.postgres, database, "pipe", rows, ids=False)
        return figures

    def relay(self, database, rows, arguments=(), postgres=None, topics=0, before=0):
        """Drains a database; `before` rows of it have receipts already."""
        postgres = postgres or self.postgres
        if topics and not before:
            self.kafka.fresh_topics([f"{TOPIC}-{n}" for n in range(topics)], 1)
        elif not before:
            self.kafka.fresh_topic(TOPIC)
        figures = relay.drain(self.binary, postgres, self.kafka, database, rows, self.folder / f"{database}.log",
                              [*self.options.arguments, *arguments], before)
        self.verify(postgres, database, TOPIC, before + rows, topics=topics)
        return figures

    def latency(self, interval_ns, rows, warm_up, arguments=(), postgres=None):
        """Single rows at a steady pace through a fresh relay."""
        postgres = postgres or self.postgres
        self.seed("empty", 0, postgres)
        postgres.copy("empty", "latency")
        self.kafka.fresh_topic(TOPIC)
        figures = relay.latency(self, postgres, "latency", interval_ns, rows, warm_up, [*self.options.arguments, *arguments])
        self.verify(postgres, "latency", TOPIC, rows)
        postgres.drop("latency")
        return figures

    def watch(self, postgres, database, interval_ns, rows, insert=INSERT, watched=True, first=0):
        """Writes rows at a steady pace; [(id, due, committed, seen)] in us. Not watched: nobody reads the topic. first: so many went before."""
        command = [self.helpers["latency"], postgres.conninfo(database), self.kafka.brokers if watched else "-", TOPIC,
                   str(interval_ns), str(first), str(rows), insert]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError("the latency run broke")
        return [tuple(int(word) for word in line.split()) for line in done.stdout.splitlines()]

    def warm_up(self):
        """What comes first is for nobody's count: the broker has not compiled yet what it runs."""
        if self.warmed:
            return
        rows = self.scaled(1_000_000 if not self.options.quick else 200_000)
        self.seed("seeded", rows)
        self.until_warm(lambda: self.pipe("warm_up", rows)["kafka_cpu_us"] + self.relay("warm_up", rows)["kafka_cpu_us"])
        self.warmed = True

    def until_warm(self, run):
        """Runs on a copy of the seeded rows, until a message costs the broker no less than in the run before."""
        before = None
        for _ in range(MOST_WARM_UPS):
            self.postgres.copy("seeded", "warm_up")
            cost = run()
            if before is not None and cost > 0.9 * before:
                break
            before = cost
        self.postgres.drop("warm_up")


def load_now():
    return round(os.getloadavg()[0], 2)
