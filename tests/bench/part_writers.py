"""What an outbox costs those who write: pgbench with and without a relay, and against a plain table."""
import contextlib
import re
import statistics
import subprocess

import relay
from report import cell, check, table
from servers import CpuMeter
from stage import TOPIC, say, spread

PAYLOAD = "repeat(md5(:n::text), 9)"  # 288 bytes
OUTBOX = f"insert into outbox.message (topic, key, payload) values ('{TOPIC}', 'customer-' || :n % 100000, {PAYLOAD});"
PLAIN = f"insert into plain_outbox (topic, key, payload) values ('{TOPIC}', 'customer-' || :n % 100000, {PAYLOAD});"
# What one would write without denpyo: no transaction id, no message id, no constraints, and the primary key as its only index.
PLAIN_TABLE = """
create table plain_outbox (id bigint generated always as identity primary key, topic text not null, key text, payload text,
                           created_at timestamptz not null default clock_timestamp())
"""
BULK_ROWS = 1000


def bulk(statement):
    """The same rows, a thousand a transaction."""
    values = statement.split(" values (")[1].removesuffix(");").replace(":n", "(:n + i)")
    return f"{statement.split(' values ')[0]} select {values} from generate_series(1, {BULK_ROWS}) i;"


MODES = {  # name: (what pgbench runs, whether a relay runs)
    "plain": (PLAIN, False), "outbox": (OUTBOX, False), "with_relay": (OUTBOX, True),
    "plain_bulk": (bulk(PLAIN), False), "outbox_bulk": (bulk(OUTBOX), False), "with_relay_bulk": (bulk(OUTBOX), True),
}
CLIENTS = 8


def pgbench(stage, database, statement, seconds):
    script = stage.folder / "pgbench.sql"
    script.write_text(f"\\set n random(1, 1000000000)\n{statement}\n")
    done = subprocess.run(["pgbench", "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "2", "-T", str(seconds), "-f", script,
                           stage.postgres.conninfo(database)], capture_output=True, text=True, check=True)
    return float(re.search(r"tps = ([\d.]+)", done.stdout)[1]), float(re.search(r"latency average = ([\d.]+)", done.stdout)[1])


@contextlib.contextmanager
def running(stage, database, wanted):
    """A relay that leads, when one is wanted; what it left undone is nobody's figure."""
    if not wanted:
        yield
        return
    with relay.Relay(stage.binary, stage.postgres.conninfo(database), stage.kafka.brokers, stage.folder / "writers.log",
                     stage.options.arguments) as process, stage.postgres.connect(database) as db:
        relay.wait_leading(db, process)
        yield
        process.require_alive()
        relay.wait_settled(db, process, db.execute("select count(*) from outbox.message").fetchone()[0])
        process.stop()


def measure(stage, name, seconds):
    statement, with_relay = MODES[name]
    stage.postgres.copy("empty", "round")
    with stage.postgres.connect("round") as db:
        db.execute(PLAIN_TABLE)
    stage.kafka.fresh_topic(TOPIC)
    with running(stage, "round", with_relay):
        meter = CpuMeter(stage.postgres, stage.kafka)
        tps, latency_ms = pgbench(stage, "round", statement, seconds)
        spent = meter.stop(1, 0.0)
    stage.postgres.drop("round")
    say(f"  {name}: {tps:,.0f} transactions/s")
    return {"tps": tps, "latency_ms": latency_ms, "postgres_cpu_us": spent["postgres_cpu_us"] / (tps * seconds)}


def writers(stage):
    seconds = max(3, round(10 * stage.options.scale))
    stage.seed("empty", 0)
    found = []
    for number in range(stage.options.rounds):
        names = list(MODES) if number % 2 == 0 else list(reversed(MODES))
        found.append({name: measure(stage, name, seconds) for name in names})
    return {"seconds": seconds, "rounds": found}


def part_of(raw, name, other):
    return spread([r[name]["tps"] / r[other]["tps"] for r in raw["rounds"]])


def writers_lines(raw):
    return [
        check("writers with a relay: part of those without", part_of(raw, "with_relay", "outbox"), "{:.2f}", at_least=0.9),
        check("writers of our table: part of those of a plain one", part_of(raw, "outbox", "plain"), "{:.2f}", at_least=0.9),
        check("the same, a thousand rows a transaction", part_of(raw, "outbox_bulk", "plain_bulk"), "{:.2f}"),
    ]


def writers_show(raw):
    names = {"plain": "a plain table", "outbox": "the outbox, no relay", "with_relay": "the outbox, with a relay"}
    rows = []
    for suffix, text in (("", "one row a transaction"), ("_bulk", "a thousand rows a transaction")):
        for name, what in names.items():
            of = [r[name + suffix] for r in raw["rounds"]]
            rows.append([f"{what}, {text}", cell([o["tps"] for o in of], "{:,.0f}"), f"{statistics.median(o['latency_ms'] for o in of):.2f}",
                         f"{statistics.median(o['postgres_cpu_us'] for o in of):.0f}"])
    return [f"pgbench, {CLIENTS} clients, {raw['seconds']} s each, prepared. Relay and broker share the cores with PostgreSQL and pgbench: where the writers "
            "take all of them, what the relay and the broker need is missing to the writers.", ""] + table(
        ["", "transactions/s", "ms", "PostgreSQL CPU, us/transaction"], rows)
