"""The part that measures others: the same rows, servers and clocks for denpyo and for each rival that can be had."""
import contextlib
import os
import shutil
import signal
import subprocess
import time

import helpers
import relay
from rivals import Unavailable
from rivals.debezium import Debezium
from rivals.listener import Listener
from rivals.watermill import Watermill
from report import cell, check, table
from servers import CpuMeter, cpu_seconds, fsync_ms
from stage import TOPIC, say, spread

RIVALS = {"debezium": Debezium(), "watermill": Watermill(), "listener": Listener()}
STALL_S = 180  # a busy machine starts a JVM slowly


@contextlib.contextmanager
def running(stage, rival, home, database, is_latency):
    """A rival's process, its log in a file; stopped politely, then not."""
    work = stage.folder / "rival"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    command, environment = rival.command(home, work, stage.logical, database, stage.kafka.brokers, is_latency)
    with open(work / "log", "wb") as log:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=work)
    try:
        yield process
    except (TimeoutError, RuntimeError) as error:
        raise RuntimeError(f"{error}; {rival.name} said: {(work / 'log').read_text(errors='replace')[-2000:]}") from error
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def watch_topic(stage, rows, alive=lambda: True):
    """[(time, records)] until the topic holds all rows."""
    seen, last = [(time.time(), 0)], time.monotonic()
    while seen[-1][1] < rows:
        records = stage.kafka.records(TOPIC)
        if records is not None and records != seen[-1][1]:
            seen.append((time.time(), records))
            last = time.monotonic()
        if time.monotonic() - last > STALL_S:
            raise TimeoutError(f"{seen[-1][1]} of {rows} records, none for {STALL_S} s")
        if not alive():
            raise RuntimeError("its process ended")
        time.sleep(0.01)
    return seen


def rates(seen, rows, start):
    """From the start of the process, and warm: from when a tenth of the rows was out."""
    end = seen[-1][0]
    at, count = next((at, count) for at, count in seen if count >= rows / 10)
    return {"rate": rows / (end - start), "warm_rate": (rows - count) / (end - at) if end > at else None, "seconds": end - start}


def peak_mib(pid):
    status = open(f"/proc/{pid}/status", encoding="ascii").read()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def drain_rival(stage, rival, home, rows):
    """Fills its table while it is not there, then starts it."""
    stage.logical.copy(f"seeded_{rows}", "rival")
    with stage.logical.connect("rival") as db:
        rival.prepare(db, rows)
        stage.logical.admin.execute("checkpoint")
        stage.kafka.fresh_topic(TOPIC)
        start, meter = time.time(), CpuMeter(stage.logical, stage.kafka)
        with running(stage, rival, home, "rival", False) as process:
            seen = watch_topic(stage, rows, lambda: process.poll() is None)
            figures = meter.stop(rows, cpu_seconds(process.pid))
            figures |= {"rows": rows, "peak_memory_mib": peak_mib(process.pid), **rates(seen, rows, start)}
        rival.after_run(db)
    found = helpers.compare(stage.helpers, stage.logical.conninfo("rival"), stage.kafka.brokers, TOPIC, 0, rows, False)
    stage.logical.drop("rival")
    return figures | {"content": {k: found[k] for k in ("missing", "doubled", "altered", "overtaken")}}


def drain_denpyo(stage, rows):
    """The same rows through denpyo on the same servers; the clock is the topic, as for the rivals."""
    stage.logical.copy(f"seeded_{rows}", "rival")
    stage.kafka.fresh_topic(TOPIC)
    with stage.logical.connect("rival") as db:
        start, meter = time.time(), CpuMeter(stage.logical, stage.kafka)
        with relay.Relay(stage.binary, stage.logical.conninfo("rival"), stage.kafka.brokers, stage.folder / "rival.log",
                         stage.options.arguments) as process:
            seen = watch_topic(stage, rows, lambda: process.process.poll() is None)
            figures = meter.stop(rows, process.cpu_seconds())
            figures |= {"rows": rows, "peak_memory_mib": process.peak_memory_mib(), **rates(seen, rows, start)}
            relay.wait_settled(db, process, rows)
            process.stop()
    stage.verify(stage.logical, "rival", TOPIC, rows)
    stage.logical.drop("rival")
    return figures


def latency_rival(stage, rival, home):
    seconds = stage.options.seconds
    stage.seed("empty", 0, stage.logical)
    stage.logical.copy("empty", "rival")
    with stage.logical.connect("rival") as db:
        rival.prepare(db, 0)
        stage.kafka.fresh_topic(TOPIC)
        with running(stage, rival, home, "rival", True):
            db.execute(f"prepare warm as {rival.insert}")
            for _ in range(20):  # it is up once these came through; the watcher passes over them
                db.execute(f"execute warm ('{TOPIC}', 'warm', '{{\"warm\":1}}')")
            watch_topic(stage, 20)
            times = stage.watch(stage.logical, "rival", 1_000_000_000 // rival.rate, rival.rate * seconds, rival.insert)[2 * rival.rate:]
        rival.after_run(db)
    stage.logical.drop("rival")
    return {"commit_to_consumer_ms": relay.percentiles([seen - committed for _, _, committed, seen in times])}


def quiesce(stage):
    """What a drain left in memory goes to the disk before a latency run: whoever came first would wait for it at each commit."""
    stage.logical.admin.execute("checkpoint")
    os.sync()


def of_one(stage, name, rival, home, rows):
    """Rounds of denpyo and a rival in turn."""
    stage.seed(f"seeded_{rows}", rows, stage.logical)
    found = {"drain": [], "denpyo": [], "latency": [], "denpyo_latency": [], "fsync_ms": []}
    for number in range(stage.options.rounds):
        found["denpyo"].append(drain_denpyo(stage, rows))
        found["drain"].append(drain_rival(stage, rival, home, rows))
        found["fsync_ms"].append(fsync_ms(stage.folder))
        latencies = {"denpyo_latency": lambda: stage.latency(1_000_000_000 // rival.rate, rival.rate * stage.options.seconds, 2 * rival.rate,
                                                             postgres=stage.logical),
                     "latency": lambda: latency_rival(stage, rival, home)}
        for side in latencies if number % 2 == 0 else reversed(latencies):
            quiesce(stage)
            found[side].append(latencies[side]())
        late, ours = found["latency"][-1]["commit_to_consumer_ms"], found["denpyo_latency"][-1]["commit_to_consumer_ms"]
        say(f"  {name}, round {number + 1}: {found['drain'][-1]['rate']:,.0f} messages/s, denpyo {found['denpyo'][-1]['rate']:,.0f}; "
            f"p50 {late['p50']:.1f} p99 {late['p99']:.1f} ms, denpyo {ours['p50']:.1f} and {ours['p99']:.1f}")
    return found


def rivals(stage):
    out = {}
    stage.warm_up()
    million = stage.scaled(1_000_000)
    for name, rival in RIVALS.items():
        settings = {path.name: path.read_text() for path in rival.settings()}
        try:
            found = of_one(stage, name, rival, rival.install(), min(million, max(1000, round(rival.rows * min(1.0, 10 * stage.options.scale)))))
        except (Unavailable, TimeoutError, RuntimeError) as error:
            say(f"  {name} is left out: {error}")
            found = {"left_out": str(error)[:2000]}
        out[name] = {"name": rival.name, "settings": settings, "rate": rival.rate, **found}
    return {"rivals": out}


TIMES = {"debezium": (6, 4), "watermill": (60, 60), "listener": (60, 60)}  # from the start, warm


def rivals_lines(raw):
    lines = []
    for name, one in raw["rivals"].items():
        if "left_out" in one:
            continue
        for which, text, most in (("rate", "from start", TIMES[name][0]), ("warm_rate", "warm", TIMES[name][1])):
            pairs = [(d[which], r[which]) for d, r in zip(one["denpyo"], one["drain"]) if d[which] and r[which]]
            if pairs:
                lines.append(check(f"{one['name']}: times its drain, {text}", spread([d / r for d, r in pairs]), "{:.1f}", at_least=most))
        for which in ("p50", "p99"):
            ratio = [d["commit_to_consumer_ms"][which] / r["commit_to_consumer_ms"][which] for d, r in zip(one["denpyo_latency"], one["latency"])]
            lines.append(check(f"{one['name']}: part of its latency at {one['rate']:,} a second, {which}", spread(ratio), "{:.2f}", at_most=1))
    return lines


def shown(name, drains, latencies):
    late = [one["commit_to_consumer_ms"] for one in latencies]
    content = drains[0].get("content")
    fault = "" if content is None else ", ".join(f"{v:,} {k}" for k, v in content.items() if v) or "as it should be"
    return [name, cell([d["rate"] for d in drains], "{:,.0f}"), cell([d["warm_rate"] for d in drains], "{:,.0f}"),
            cell([d["client_cpu_us"] for d in drains], "{:.1f}"), cell([d["postgres_cpu_us"] for d in drains], "{:.1f}"),
            cell([d["peak_memory_mib"] for d in drains], "{:.0f}"), " / ".join(f"{x['p50']:.1f}, {x['p99']:.1f}" for x in late),
            fault or "checked"]


def rivals_show(raw):
    rows, after = [], []
    for one in raw["rivals"].values():
        if "left_out" in one:
            after += ["", f"{one['name']} is left out: {one['left_out'].splitlines()[0]}"]
            continue
        count = one["drain"][0]["rows"]
        rows.append(shown(f"{one['name']}, {count:,} rows", one["drain"], one["latency"]))
        rows.append(shown(f"denpyo, {count:,} rows", one["denpyo"], one["denpyo_latency"]))
        for name, text in one["settings"].items():
            after += ["", f"<details><summary>{one['name']}: {name}</summary>", "", "```", text.strip(), "```", "</details>"]
    return ["From the process's start until the last record; warm: from when a tenth was out. Latency: commit → consumer at the rate that the table of targets names.", ""] + table(
        ["", "messages/s", "warm", "CPU, us", "PostgreSQL CPU, us", "memory, MiB", "latency p50, p99, ms", "the topic"], rows) + after
