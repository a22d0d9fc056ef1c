"""Runs `denpyo run` on a database and measures what it did: rate, CPU time, memory, WAL, dead tuples."""
import os
import pathlib
import re
import signal
import subprocess
import time

from servers import CpuMeter, cpu_seconds

STALL_S = 60  # as long may pass without a new receipt before the run counts as stuck

SETTLED = "select coalesce(sum(count), 0)::bigint from outbox.settlement_topic"
DEAD = """
select coalesce(sum(n_dead_tup), 0)::bigint, coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint
from pg_stat_user_tables where schemaname = 'outbox'
"""
SPAN = """
select extract(epoch from min(b.claimed_at)), extract(epoch from max(s.settled_at)), count(*)
from outbox.settlement s join outbox.batch b using (relay, id)
"""


class Relay:
    """One `denpyo run`; its log goes to a file. Leaving the context stops it."""

    def __init__(self, binary, conninfo, brokers, log, arguments):
        self.log = log
        with open(log, "wb") as output:
            self.process = subprocess.Popen(
                [binary, "run", "--postgres", conninfo, "--brokers", brokers, *arguments],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait()

    def require_alive(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"denpyo run ended with {self.process.returncode}:\n{self.tail()}")

    def tail(self):
        return "".join(pathlib.Path(self.log).read_text(errors="replace").splitlines(True)[-20:])

    def peak_memory_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)

    def stop(self):
        """SIGTERM, then the CPU time of its whole life; RuntimeError when it did not end well."""
        self.process.send_signal(signal.SIGTERM)
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode != 0:
            raise RuntimeError(f"denpyo run answered SIGTERM with {self.process.returncode}:\n{self.tail()}")
        return usage.ru_utime + usage.ru_stime


def wait_settled(db, relay, rows):
    """Until all rows have receipts; a query each 50 ms over one small row a batch."""
    settled, since = 0, time.monotonic()
    while settled < rows:
        time.sleep(0.05)
        relay.require_alive()
        now = db.execute(SETTLED).fetchone()[0]
        if now != settled:
            settled, since = now, time.monotonic()
        if time.monotonic() - since > STALL_S:
            parked = db.execute("select state, count(*), min(error) from outbox.parked group by state").fetchall()
            raise RuntimeError(f"{settled} of {rows} rows settled, none for {STALL_S} s; parked: {parked}\n{relay.tail()}")


def drain(binary, postgres, kafka, database, rows, log, arguments):
    """Publishes all rows; from the start of the program until the last receipt was written."""
    with postgres.connect(database) as db:
        meter = CpuMeter(postgres, kafka)
        wal_before = db.execute("select pg_current_wal_insert_lsn()").fetchone()[0]
        start = time.time()
        with Relay(binary, postgres.conninfo(database), kafka.brokers, log, arguments) as relay:
            wait_settled(db, relay, rows)
            wal = db.execute("select pg_current_wal_insert_lsn() - %s::pg_lsn", [wal_before]).fetchone()[0]
            memory = relay.peak_memory_mib()
            cpu = meter.stop(rows, relay.cpu_seconds())
            cpu["client_cpu_us"] = 1e6 * relay.stop() / rows  # its whole life, and not in ticks
        first_claim, last_receipt, batches = (float(n) for n in db.execute(SPAN).fetchone())
    with postgres.connect(database) as db:  # a relay that ended has reported its statistics
        dead, changed = db.execute(DEAD).fetchone()
    return {
        "seconds": last_receipt - start,
        "rate": rows / (last_receipt - start),
        "startup_ms": 1000 * (first_claim - start),
        **cpu,
        "peak_memory_mib": memory,
        "dead_tuples": dead,
        "rows_updated_or_deleted": changed,
        "wal_bytes": float(wal) / rows,
        "batches": int(batches),
    }


RECEIPT_TIMES = """
select unnest(ids), (extract(epoch from settled_at) * 1000000)::bigint from outbox.settlement
"""


def percentiles(values_us):
    """p50, p99 and the worst, in ms."""
    ordered = sorted(values_us)
    pick = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1000
    return {"p50": pick(0.5), "p99": pick(0.99), "max": ordered[-1] / 1000}


def latency(binary, postgres, kafka, database, topic, options, log):
    """Commits single rows at a steady rate while the relay runs; how long until the consumer saw, until the receipt."""
    rows, warm_up = options.rate * options.seconds, options.rate * options.warm_up_seconds
    command = [options.helpers["latency"], postgres.conninfo(database), kafka.brokers, topic, str(options.rate),
               str(options.seconds)]
    with postgres.connect(database) as db:
        with Relay(binary, postgres.conninfo(database), kafka.brokers, log, options.arguments) as relay:
            cpu_before, start = relay.cpu_seconds(), time.monotonic()
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            cpu, elapsed = relay.cpu_seconds() - cpu_before, time.monotonic() - start
            relay.require_alive()
            if done.returncode != 0:
                raise RuntimeError(f"the latency run broke; the relay said:\n{relay.tail()}")
            wait_settled(db, relay, rows)
            relay.stop()
        receipts = dict(db.execute(RECEIPT_TIMES).fetchall())
    times = [tuple(int(word) for word in line.split()) for line in done.stdout.splitlines()][warm_up:]
    span_s = (times[-1][2] - times[0][2]) / 1e6
    return {
        "rows": len(times),
        "rows_per_second": (len(times) - 1) / span_s,
        "due_to_commit_ms": percentiles([committed - due for _, due, committed, _ in times]),
        "commit_to_consumer_ms": percentiles([seen - committed for _, _, committed, seen in times]),
        "commit_to_receipt_ms": percentiles([receipts[row] - committed for row, _, committed, _ in times]),
        "relay_cpu_percent": 100 * cpu / elapsed,
    }
