"""What an outbox costs those who write: pgbench with and without a relay, and against a plain table."""
import contextlib
import re
import statistics
import subprocess

import relay
from report import cell, check, table
from servers import CpuMeter, cpu_seconds
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
CLAIMS = "select count(*), coalesce(avg(row_count), 0)::float8 from outbox.batch where row_count > 0"


def bulk(statement):
    """The same rows, a thousand a transaction."""
    values = statement.split(" values (")[1].removesuffix(");").replace(":n", "(:n + i)")
    return f"{statement.split(' values ')[0]} select {values} from generate_series(1, {BULK_ROWS}) i;"


DROP_CHECKS = """
do $$ begin
    execute (select 'alter table outbox.message ' || string_agg(format('drop constraint %I', conname), ', ')
               from pg_constraint where conrelid = 'outbox.message'::regclass and contype = 'c');
end $$
"""

MODES = {  # name: (what pgbench runs, whether a relay runs); unchecked: our columns and indexes without our constraints
    "plain": (PLAIN, False), "unchecked": (OUTBOX, False), "outbox": (OUTBOX, False), "with_relay": (OUTBOX, True),
    "plain_bulk": (bulk(PLAIN), False), "outbox_bulk": (bulk(OUTBOX), False), "with_relay_bulk": (bulk(OUTBOX), True),
}
STEADY = {"plain_steady": MODES["plain"], "outbox_steady": MODES["outbox"], "with_relay_steady": MODES["with_relay"]}
STEADY_PART = 0.6  # of what the outbox takes at full speed without a relay
CLIENTS = 8


def pgbench(stage, database, statement, seconds, rate=None):
    script = stage.folder / "pgbench.sql"
    script.write_text(f"\\set n random(1, 1000000000)\n{statement}\n")
    done = subprocess.run(["pgbench", "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "2", "-T", str(seconds), "-f", script,
                           *(["-R", str(rate)] if rate else []), stage.postgres.conninfo(database)], capture_output=True, text=True, check=True)
    return float(re.search(r"tps = ([\d.]+)", done.stdout)[1]), float(re.search(r"latency average = ([\d.]+)", done.stdout)[1])


@contextlib.contextmanager
def running(stage, database, wanted):
    """A relay that leads, when one is wanted: yields what tells its CPU time and its sessions'. What it left undone is nobody's figure."""
    if not wanted:
        yield lambda: (0.0, 0.0)
        return
    with relay.Relay(stage.binary, stage.postgres.conninfo(database), stage.kafka.brokers, stage.folder / "writers.log",
                     stage.options.arguments) as process, stage.postgres.connect(database) as db:
        relay.wait_leading(db, process)
        yield lambda: (process.cpu_seconds(), sum(cpu_seconds(pid) for _, pid in db.execute(relay.BACKENDS).fetchall()))
        process.require_alive()
        relay.wait_settled(db, process, db.execute("select count(*) from outbox.message").fetchone()[0])
        process.stop()


def measure(stage, name, mode, seconds, rate=None):
    statement, with_relay = mode
    stage.postgres.copy("empty", "round")
    with stage.postgres.connect("round") as db:
        db.execute(PLAIN_TABLE)
        if name == "unchecked":
            db.execute(DROP_CHECKS)
        stage.kafka.fresh_topic(TOPIC)
        with running(stage, "round", with_relay) as cpu_of_relay:
            meter, before = CpuMeter(stage.postgres, stage.kafka), cpu_of_relay()
            tps, latency_ms = pgbench(stage, "round", statement, seconds, rate)
            (client, sessions), claims = (now - then for now, then in zip(cpu_of_relay(), before)), db.execute(CLAIMS).fetchone()
            spent = meter.stop(tps * seconds, client)
    stage.postgres.drop("round")
    say(f"  {name}: {tps:,.0f} transactions/s")
    sessions_us = 1e6 * sessions / (tps * seconds)
    return {"tps": tps, "latency_ms": latency_ms, "rate": rate, "postgres_cpu_us": spent["postgres_cpu_us"], "sessions_cpu_us": sessions_us,
            "relay_cpu_us": spent["client_cpu_us"], "kafka_cpu_us": spent["kafka_cpu_us"], "claims": claims[0], "rows_a_claim": claims[1]}


def writers(stage):
    seconds = max(3, round(10 * stage.options.scale))
    stage.warm_up()
    stage.seed("empty", 0)
    found, rate = [], None
    for number in range(stage.options.rounds):
        order = (lambda modes: modes) if number % 2 == 0 else (lambda modes: dict(reversed(modes.items())))
        one = {name: measure(stage, name, mode, seconds) for name, mode in order(MODES).items()}
        rate = rate or round(STEADY_PART * one["outbox"]["tps"])
        one |= {name: measure(stage, name, mode, seconds, rate) for name, mode in order(STEADY).items()}
        found.append(one)
    return {"seconds": seconds, "rounds": found}


def part_of(raw, name, other, figure="tps"):
    return spread([r[name][figure] / r[other][figure] for r in raw["rounds"]])


def own_cpu(raw, name, other):
    """PostgreSQL's CPU a transaction without the relay's sessions, as a part of that of `other`."""
    own = lambda figures: figures["postgres_cpu_us"] - figures["sessions_cpu_us"]
    return spread([own(r[name]) / own(r[other]) for r in raw["rounds"]])


def writers_lines(raw):
    return [
        check("writers with a relay: part of those without, all at full speed", part_of(raw, "with_relay", "outbox"), "{:.2f}", at_least=0.9),
        check(f"the same at {STEADY_PART} of full speed", part_of(raw, "with_relay_steady", "outbox_steady"), "{:.2f}", at_least=0.9),
        check("the same, how many times the latency", part_of(raw, "with_relay_steady", "outbox_steady", "latency_ms"), "{:.2f}"),
        check("the same, how many times PostgreSQL's CPU in the writers' sessions", own_cpu(raw, "with_relay_steady", "outbox_steady"), "{:.2f}"),
        check("writers of our table: part of those of a plain one", part_of(raw, "outbox", "plain"), "{:.2f}", at_least=0.9),
        check("our columns and indexes without our checks: part of the plain table's", part_of(raw, "unchecked", "plain"), "{:.2f}", at_least=0.9),
        check("our table, a thousand rows a transaction: part of the plain one's", part_of(raw, "outbox_bulk", "plain_bulk"), "{:.2f}"),
    ]


def writers_show(raw):
    names = {"plain": "a plain table", "unchecked": "the outbox without its checks", "outbox": "the outbox, no relay", "with_relay": "the outbox, with a relay"}
    rate = raw["rounds"][0]["outbox_steady"]["rate"]
    rows = []
    for suffix, text in (("", "one row a transaction"), ("_steady", f"the same, {rate:,} a second wanted"), ("_bulk", "a thousand rows a transaction")):
        for name, what in names.items():
            if name + suffix not in raw["rounds"][0]:
                continue
            of = [r[name + suffix] for r in raw["rounds"]]
            median = lambda figure: statistics.median(o[figure] for o in of)
            rows.append([f"{what}, {text}", cell([o["tps"] for o in of], "{:,.0f}"), f"{median('latency_ms'):.2f}",
                         f"{statistics.median(o['postgres_cpu_us'] - o['sessions_cpu_us'] for o in of):.0f}",
                         *((f"{median(f):.0f}" for f in ("sessions_cpu_us", "relay_cpu_us", "kafka_cpu_us", "rows_a_claim")) if name == "with_relay"
                           else ["–"] * 4)])
    return [f"pgbench, {CLIENTS} clients, {raw['seconds']} s each, prepared. Relay and broker share the cores with PostgreSQL and pgbench: where the writers "
            "take all of them, what the relay and the broker need is missing to the writers. At a steady rate each transaction is due at a time of its own, "
            "and its latency counts from there. CPU is in microseconds a transaction.", ""] + table(
        ["", "transactions/s", "ms", "PostgreSQL without the relay's sessions", "the relay's sessions", "relay", "Kafka", "rows a claim"], rows)
