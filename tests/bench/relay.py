"""Runs `denpyo run` on a database and measures what it did: rate, CPU time, memory, WAL, dead tuples."""
import os
import pathlib
import re
import signal
import subprocess
import time

from servers import CpuMeter, cpu_seconds

STALL_S = 60  # as long may pass without a new receipt before the run counts as stuck

SETTLED = "select coalesce(sum(count), 0)::bigint, max(batch_id) from outbox.settlement_topic where relay = 'default' and batch_id > %s"
DEAD = """
select coalesce(sum(n_dead_tup), 0)::bigint, coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint
from pg_stat_user_tables where schemaname = 'outbox' and relname <> 'relay'
"""
# Its lease is one row that is updated every few seconds, whatever is sent.
BACKENDS = "select application_name, pid from pg_stat_activity where datname = current_database() and application_name like 'denpyo %'"
FIRST_CLAIM = "select extract(epoch from min(claimed_at))::float8 from outbox.batch where id > %s"


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


def wait_leading(db, relay):
    """Until it has the lease: what is committed then is not waiting for a start."""
    end = time.monotonic() + STALL_S
    while db.execute("select 1 from outbox.leader where has_lease").fetchone() is None:
        relay.require_alive()
        if time.monotonic() > end:
            raise RuntimeError(f"the relay did not lead within {STALL_S} s:\n{relay.tail()}")
        time.sleep(0.02)


def wait_settled(db, relay, rows):
    """Until all rows have receipts. Each 50 ms it reads what came since: with many topics a batch has many rows there, and who reads all of
    them each time takes a core for himself."""
    settled, upto, since = 0, 0, time.monotonic()
    while settled < rows:
        time.sleep(0.05)
        relay.require_alive()
        more, newest = db.execute(SETTLED, [upto], prepare=False).fetchone()
        if more > 0:
            settled, upto, since = settled + more, newest, time.monotonic()
        if time.monotonic() - since > STALL_S:
            parked = db.execute("select state, count(*), min(error) from outbox.parked group by state").fetchall()
            raise RuntimeError(f"{settled} of {rows} rows settled, none for {STALL_S} s; parked: {parked}\n{relay.tail()}")


# Receipts by the time they were written, the rows that had none at the start only.
SETTLEMENTS = """
select extract(epoch from s.settled_at)::float8, (t.count)::bigint
from outbox.settlement s join (select relay, batch_id, sum(count) as count from outbox.settlement_topic group by 1, 2) t
  on t.relay = s.relay and t.batch_id = s.id
where s.id > %s order by s.id
"""


def rate_of_last(settlements, rows, begin):
    """Messages a second over the last `rows` of them: from when all before had receipts (or `begin`) until the last has."""
    left, end = rows, settlements[-1][0]
    for at, count in reversed(settlements):
        if left <= 0:
            return rows / (end - at)
        left -= count
    return rows / (end - begin)


def curve(settlements, begin, points=200):
    """[(seconds, messages settled)] for a picture, thinned out."""
    total, out = 0, [(0.0, 0)]
    step = max(1, len(settlements) // points)
    for i, (at, count) in enumerate(settlements):
        total += count
        if i % step == step - 1 or i == len(settlements) - 1:
            out.append((round(at - begin, 3), total))
    return out


def drain(binary, postgres, kafka, database, rows, log, arguments, before=0):
    """Publishes all rows; from the start of the program until the last receipt was written."""
    with postgres.connect(database) as db:
        newest = db.execute("select coalesce(max(id), 0) from outbox.batch").fetchone()[0]
        meter = CpuMeter(postgres, kafka)
        wal_before = db.execute("select pg_current_wal_insert_lsn()").fetchone()[0]
        start = time.time()
        with Relay(binary, postgres.conninfo(database), kafka.brokers, log, arguments) as relay:
            wait_settled(db, relay, before + rows)
            wal = db.execute("select pg_current_wal_insert_lsn() - %s::pg_lsn", [wal_before]).fetchone()[0]
            memory = relay.peak_memory_mib()
            backends = {f"{name.split()[-1]}_backend_us": 1e6 * cpu_seconds(pid) / rows for name, pid in db.execute(BACKENDS).fetchall()}
            cpu = meter.stop(rows, relay.cpu_seconds())
            cpu["client_cpu_us"] = 1e6 * relay.stop() / rows  # its whole life, and not in ticks
        first_claim = db.execute(FIRST_CLAIM, [newest]).fetchone()[0]
        settlements = db.execute(SETTLEMENTS, [newest]).fetchall()
    with postgres.connect(database) as db:  # a relay that ended has reported its statistics
        dead, changed = db.execute(DEAD).fetchone()
    last_receipt = settlements[-1][0]
    return {
        "rows": rows,
        "seconds": last_receipt - start,
        "rate": rows / (last_receipt - start),
        "warm_rate": rows / (last_receipt - first_claim),
        "last_million_rate": rate_of_last(settlements, min(rows, 1_000_000), first_claim),
        "startup_ms": 1000 * (first_claim - start),
        **cpu,
        **backends,
        "peak_memory_mib": memory,
        "dead_tuples": dead,
        "rows_updated_or_deleted": changed,
        "wal_bytes": float(wal) / rows,
        "batches": len(settlements),
        "curve": curve(settlements, first_claim),
    }


CLAIM_AND_RECEIPT_TIMES = """
select unnest(s.ids), (extract(epoch from b.claimed_at) * 1000000)::bigint, (extract(epoch from s.settled_at) * 1000000)::bigint
from outbox.settlement s join outbox.batch b using (relay, id)
"""
STEPS = [*range(0, 99), *(99 + n / 10 for n in range(11))]  # of the distribution that is kept for a picture


def percentiles(values_us):
    """p50, p99, the worst, and the distribution, in ms."""
    ordered = sorted(values_us)
    pick = lambda percent: ordered[min(len(ordered) - 1, int(percent / 100 * len(ordered)))] / 1000
    return {"p50": pick(50), "p99": pick(99), "max": ordered[-1] / 1000, "distribution": [(p, pick(p)) for p in STEPS]}


def latency(stage, postgres, database, interval_ns, rows, warm_up, arguments):
    """Commits single rows at a steady pace while the relay runs; how long until the consumer saw, until the receipt."""
    log = stage.folder / "latency.log"
    with postgres.connect(database) as db:
        with Relay(stage.binary, postgres.conninfo(database), stage.kafka.brokers, log, arguments) as relay:
            wait_leading(db, relay)
            wal_before = db.execute("select pg_current_wal_insert_lsn()").fetchone()[0]
            meter, cpu_before, start = CpuMeter(postgres, stage.kafka), relay.cpu_seconds(), time.monotonic()
            times = stage.watch(postgres, database, interval_ns, rows)
            cpu, elapsed = relay.cpu_seconds() - cpu_before, time.monotonic() - start
            relay.require_alive()
            wait_settled(db, relay, rows)
            wal = db.execute("select pg_current_wal_insert_lsn() - %s::pg_lsn", [wal_before]).fetchone()[0]
            spent = meter.stop(rows, cpu)
            relay.stop()
        ours = {row: (claim, receipt) for row, claim, receipt in db.execute(CLAIM_AND_RECEIPT_TIMES).fetchall()}
        batches = db.execute("select count(*) from outbox.batch").fetchone()[0]
    times = times[warm_up:]
    return {
        "rows": len(times),
        "rows_per_second": (len(times) - 1) / max(1e-6, (times[-1][2] - times[0][2]) / 1e6),
        "due_to_commit_ms": percentiles([committed - due for _, due, committed, _ in times]),
        "commit_to_consumer_ms": percentiles([seen - committed for _, _, committed, seen in times]),
        "commit_to_claim_ms": percentiles([ours[row][0] - committed for row, _, committed, _ in times]),
        "claim_to_consumer_ms": percentiles([seen - ours[row][0] for row, _, _, seen in times]),
        "commit_to_receipt_ms": percentiles([ours[row][1] - committed for row, _, committed, _ in times]),
        "relay_cpu_percent": 100 * cpu / elapsed,
        "postgres_cpu_us": spent["postgres_cpu_us"],
        "kafka_cpu_us": spent["kafka_cpu_us"],
        "others_percent": spent["others_percent"],
        "wal_bytes": float(wal) / rows,
        "rows_per_batch": rows / batches,
    }
