"""Parts that ask how late a message is: at steady rates, and after a silence, with what a relay costs that has nothing to do."""
import time

import relay
from report import check, table
from servers import CpuMeter, fsync_ms
from stage import say, spread

RATES = (100, 1000, 5000)


def writers_alone(stage, interval_ns, rows):
    """The same writes with nobody reading: what is left of WAL and CPU is the relay's."""
    stage.seed("empty", 0)
    stage.postgres.copy("empty", "latency")
    with stage.postgres.connect("latency") as db:
        before, meter = db.execute("select pg_current_wal_insert_lsn()").fetchone()[0], CpuMeter(stage.postgres, stage.kafka)
        times = stage.watch(stage.postgres, "latency", interval_ns, rows, watched=False)
        wal = db.execute("select pg_current_wal_insert_lsn() - %s::pg_lsn", [before]).fetchone()[0]
        spent = meter.stop(rows, 0.0)
    stage.postgres.drop("latency")
    return {"wal_bytes": float(wal) / rows, "postgres_cpu_us": spent["postgres_cpu_us"],
            "due_to_commit_ms": relay.percentiles([committed - due for _, due, committed, _ in times])}


def latency(stage):
    rates = [stage.options.rate] if stage.options.rate else [1000] if stage.options.quick else RATES
    out = []
    stage.warm_up()
    for rate in rates:
        interval_ns, seconds = 1_000_000_000 // rate, stage.options.seconds
        found = []
        for number in range(stage.options.rounds):
            fsync = fsync_ms(stage.folder)
            alone = writers_alone(stage, interval_ns, rate * max(2, seconds // 3)) if not stage.options.quick else None
            figures = stage.latency(interval_ns, rate * seconds, 2 * rate)
            late = figures["commit_to_consumer_ms"]
            say(f"  {rate:,} a second, round {number + 1}: p50 {late['p50']:.1f} ms, p99 {late['p99']:.1f} ms; one fsync {fsync[0]:.1f} ms")
            found.append({"fsync_ms": fsync, "alone": alone, **figures})
        out.append({"rate": rate, "rounds": found})
    return {"rates": out}


def beyond_fsync(rounds, which, index):
    return spread([max(0.0, r["commit_to_consumer_ms"][which] - r["fsync_ms"][index]) for r in rounds])


def latency_lines(raw):
    lines = []
    for one in raw["rates"]:
        target = {1000: (3, 10)}.get(one["rate"], (None, None))
        for which, index, at_most in (("p50", 0, target[0]), ("p99", 1, target[1])):
            lines.append(check(f"latency at {one['rate']:,} a second: {which} beyond one fsync, ms", beyond_fsync(one["rounds"], which, index),
                               "{:.1f}", at_most=at_most))
        if one["rounds"][0]["alone"]:
            wal = spread([r["wal_bytes"] - r["alone"]["wal_bytes"] for r in one["rounds"]])
            lines.append(check(f"latency at {one['rate']:,} a second: WAL of the relay's own work, bytes/message", wal, "{:.0f}"))
    return lines


def latency_show(raw):
    rows = []
    for one in raw["rates"]:
        for r in one["rounds"]:
            late, receipt, due = r["commit_to_consumer_ms"], r["commit_to_receipt_ms"], r["due_to_commit_ms"]
            claim, sent = r["commit_to_claim_ms"], r["claim_to_consumer_ms"]
            alone = r["alone"] or {"due_to_commit_ms": {"p50": None, "p99": None}, "wal_bytes": None, "postgres_cpu_us": None}
            number = lambda value, pattern: "–" if value is None else pattern.format(value)
            rows.append([f"{one['rate']:,}", f"{r['fsync_ms'][0]:.1f} / {r['fsync_ms'][1]:.1f}", f"{late['p50']:.1f} / {late['p99']:.1f}",
                         f"{late['max']:.0f}", f"{claim['p50']:.1f} / {claim['p99']:.1f}", f"{sent['p50']:.1f} / {sent['p99']:.1f}", f"{receipt['p50']:.1f} / {receipt['p99']:.1f}", f"{due['p50']:.1f} / {due['p99']:.1f}",
                         number(alone["due_to_commit_ms"]["p50"], "{:.1f}") + " / " + number(alone["due_to_commit_ms"]["p99"], "{:.1f}"),
                         f"{r['relay_cpu_percent']:.0f}", f"{r['rows_per_batch']:.1f}",
                         f"{r['wal_bytes']:.0f} / " + number(alone["wal_bytes"], "{:.0f}"),
                         f"{r['postgres_cpu_us']:.0f} / " + number(alone["postgres_cpu_us"], "{:.0f}"), f"{r['others_percent']:.0f}"])
    return ["Milliseconds, p50 / p99; the first 2 s are left out.", ""] + table(
        ["a second", "one fsync", "commit → consumer", "max", "of it: → claim written", "→ consumer", "commit → receipt", "due → commit", "the same, writers alone", "relay, % of a core",
         "rows a batch", "WAL, bytes/row, with / without relay", "PostgreSQL CPU, us/row, with / without", "used by others, %"], rows)


# --- after a silence ---

SILENCE_S = 60


def idle_cost(stage, db, process, seconds):
    """Shares of a core that relay and PostgreSQL take while nothing happens."""
    meter, cpu, start = CpuMeter(stage.postgres, stage.kafka), process.cpu_seconds(), time.monotonic()
    time.sleep(seconds)  # the silence itself is what is measured
    elapsed, spent = time.monotonic() - start, process.cpu_seconds() - cpu
    postgres = meter.stop(1, spent)["postgres_cpu_us"] / 1e6
    return {"relay_percent": 100 * spent / elapsed, "postgres_percent": 100 * postgres / elapsed}


def wakeup(stage):
    silence = max(3, round(SILENCE_S * stage.options.scale))
    stage.seed("empty", 0)
    stage.postgres.copy("empty", "latency")
    stage.kafka.fresh_topic("orders")
    with stage.postgres.connect("latency") as db, relay.Relay(
            stage.binary, stage.postgres.conninfo("latency"), stage.kafka.brokers, stage.folder / "wakeup.log", stage.options.arguments) as process:
        relay.wait_leading(db, process)
        stage.watch(stage.postgres, "latency", 1_000_000, 1000)  # the topic is known
        idle = idle_cost(stage, db, process, silence)
        seen = lambda times: [(seen - committed) / 1000 for _, _, committed, seen in times]
        long = seen(stage.watch(stage.postgres, "latency", silence * 1_000_000_000, stage.options.rounds, first=1000))
        short = seen(stage.watch(stage.postgres, "latency", 3_000_000_000, 10, first=2000))
        process.stop()
    stage.postgres.drop("latency")
    return {"silence_s": silence, "idle": idle, "first_ms": long, "after_3_s_ms": short}


def wakeup_lines(raw):
    return [
        check(f"wake-up after {raw['silence_s']} s, ms", spread(raw["first_ms"]), "{:.1f}", at_most=105),
        check("idle: relay, % of a core", spread([raw["idle"]["relay_percent"]]), "{:.2f}", at_most=0.5),
        check("idle: PostgreSQL, % of a core", spread([raw["idle"]["postgres_percent"]]), "{:.2f}", at_most=0.5),
    ]


def wakeup_show(raw):
    show = lambda values: ", ".join(f"{v:.1f}" for v in values)
    return [f"Commit → consumer after {raw['silence_s']} s of silence: {show(raw['first_ms'])} ms; after 3 s: {show(raw['after_3_s_ms'])} ms. "
            f"Idle for {raw['silence_s']} s, the relay took {raw['idle']['relay_percent']:.2f} % of a core, "
            f"PostgreSQL {raw['idle']['postgres_percent']:.2f} %."]
