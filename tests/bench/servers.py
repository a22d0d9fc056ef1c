"""Private PostgreSQL and Kafka servers for a benchmark, started by deploy/devserver, and what they cost in CPU time."""
import os
import pathlib
import subprocess
import time

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVSERVER = ROOT / "deploy" / "devserver"
PARTITIONS = 8

# A checkpoint or an autovacuum in one of two runs would decide the comparison; durability stays on.
POSTGRES_SETTINGS = {
    "shared_buffers": "1GB", "max_wal_size": "16GB", "checkpoint_timeout": "1h", "autovacuum": "off",
    "max_connections": "100",
}
LOGICAL = {"wal_level": "logical", "max_replication_slots": "4", "max_wal_senders": "4"}  # for rivals that read the WAL


def wait_until(condition, deadline_s, what):
    """The first true answer of `condition`, asked every 20 ms; TimeoutError names what did not come."""
    end = time.monotonic() + deadline_s
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > end:
            raise TimeoutError(f"no {what} within {deadline_s} s")
        time.sleep(0.02)


def cpu_seconds(pid):
    """User and system time of a process and of its children, those that ended included."""
    def times(p, count):
        fields = pathlib.Path(f"/proc/{p}/stat").read_text().rsplit(")", 1)[1].split()
        return sum(int(n) for n in fields[11:11 + count]) / os.sysconf("SC_CLK_TCK")
    total = times(pid, 4)
    for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            total += times(child, 2)
        except FileNotFoundError:
            pass
    return total


def machine_busy_seconds():
    """CPU time of everybody on this machine, the hypervisor's other guests (steal) included."""
    user, nice, system, _idle, _iowait, *rest = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    return sum(int(n) for n in (user, nice, system, *rest)) / os.sysconf("SC_CLK_TCK")


class CpuMeter:
    """CPU time from its making until `stop`, split by who used it."""

    def __init__(self, postgres, kafka):
        self.postgres, self.kafka = postgres.pid, kafka.pid
        self.before = self.read()

    def read(self):
        return {"postgres": cpu_seconds(self.postgres), "kafka": cpu_seconds(self.kafka),
                "all": machine_busy_seconds(), "clock": time.monotonic()}

    def stop(self, rows, client_seconds):
        """us a row for client, PostgreSQL and Kafka, and what part of the machine others used meanwhile."""
        spent = {name: now - self.before[name] for name, now in self.read().items()}
        ours = client_seconds + spent["postgres"] + spent["kafka"]
        available = spent["clock"] * len(os.sched_getaffinity(0))
        return {
            "client_cpu_us": 1e6 * client_seconds / rows,
            "postgres_cpu_us": 1e6 * spent["postgres"] / rows,
            "kafka_cpu_us": 1e6 * spent["kafka"] / rows,
            "others_percent": max(0.0, 100 * (spent["all"] - ours) / available),
        }


class Postgres:
    """A cluster of its own; databases are copies of a seeded one."""

    def __init__(self, folder, port, more_settings=None):
        self.folder, self.port = folder, port
        self.settings = POSTGRES_SETTINGS | (more_settings or {})
        settings = [word for item in self.settings.items() for word in ("-c", "=".join(item))]
        subprocess.run([DEVSERVER, "postgres", "start", self.folder, str(port), *settings], check=True,
                       stdout=subprocess.DEVNULL)
        self.admin = self.connect("postgres")
        self.pid = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def conninfo(self, database):
        return f"host=127.0.0.1 port={self.port} user=postgres dbname={database}"

    def connect(self, database):
        return psycopg.connect(self.conninfo(database), autocommit=True)

    def version(self):
        return self.admin.execute("show server_version").fetchone()[0]

    def exists(self, database):
        return self.admin.execute("select 1 from pg_database where datname = %s", [database]).fetchone() is not None

    def copy(self, template, database):
        """A fresh copy of `template`, read once so that it is in the server's memory, behind a checkpoint."""
        self.drop(database)
        self.admin.execute(f"create database {database} template {template} strategy file_copy")
        self.warm(database)

    def warm(self, database):
        """Reads table and indexes once, then a checkpoint."""
        with self.connect(database) as db:
            db.execute("select count(*), sum(length(payload)) from outbox.message")
            db.execute("set enable_seqscan = off")
            db.execute("select count(*) from outbox.message where id > 0")
            db.execute("select count(*) from outbox.message where xid >= '0'")
        self.admin.execute("checkpoint")

    def drop(self, database):
        self.admin.execute(f"drop database if exists {database} with (force)")


class Kafka:
    """A broker of its own."""

    def __init__(self, folder, port):
        self.folder, self.brokers = folder / "kafka", f"127.0.0.1:{port}"
        subprocess.run([DEVSERVER, "kafka", "start", self.folder, str(port)], check=True, stdout=subprocess.DEVNULL)
        self.admin = AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})
        self.pid = int((self.folder / "kafka.pid").read_text())
        self.reader = Consumer({"bootstrap.servers": self.brokers, "group.id": "bench-count", "log_level": 0})

    def fresh_topic(self, name):
        """An empty topic of 8 partitions, whatever bore the name before."""
        self.fresh_topics([name], PARTITIONS)

    def fresh_topics(self, names, partitions):
        """The same for many at once."""
        old = sorted(set(names) & set(self.admin.list_topics(timeout=10).topics))
        if old:
            self.delete_topics(old)
        left = set(names)
        wait_until(lambda: self.create(left, partitions), 60, f"new topics {sorted(left)[:3]}")
        wait_until(lambda: self.have_leaders(names, partitions), 60, f"leaders of topics {names[:3]}")
        if len(names) > 10:
            self.wait_calm()

    def create(self, left, partitions):
        """Takes out of `left` what could be created; a name that is still being freed stays."""
        for name, future in self.admin.create_topics([NewTopic(name, partitions, 1) for name in left]).items():
            if future.exception() is None:
                left.discard(name)
        return not left

    def have_leaders(self, names, partitions):
        topics = self.admin.list_topics(timeout=10).topics
        return all(name in topics and len(topics[name].partitions) == partitions
                   and all(p.leader >= 0 for p in topics[name].partitions.values()) for name in names)

    def delete_topics(self, names):
        for future in self.admin.delete_topics(names).values():
            future.result()
        wait_until(lambda: not set(names) & set(self.admin.list_topics(timeout=10).topics), 60, "end of old topics")

    def records(self, topic):
        """How many records the topic holds, by its partitions' ends; None while a fresh topic's leaders are not known to all."""
        try:
            ends = [self.reader.get_watermark_offsets(TopicPartition(topic, p), timeout=10) for p in range(PARTITIONS)]
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART):
                raise
            return None
        return sum(high - low for low, high in ends)

    def wait_calm(self):
        """Until the broker has done with what it was told before: it takes less than a fifth of a core for a second."""
        def is_calm():
            before = cpu_seconds(self.pid)
            time.sleep(1)  # a span to measure over
            return cpu_seconds(self.pid) - before < 0.2
        wait_until(is_calm, 120, "calm broker")


def stop_servers(folder):
    """Stops what runs in `folder`, also what was only starting; its data are not needed any more."""
    for postgres in folder.glob("postgres*"):
        subprocess.run([DEVSERVER, "postgres", "stop", postgres, "immediate"], check=False)
    subprocess.run([DEVSERVER, "kafka", "stop", folder / "kafka", "--kill"], check=False)


def fsync_ms(folder, times=200):
    """What one fdatasync of 8 kB costs on the disk of `folder`, written as PostgreSQL writes its WAL: over a file that is there already.
    (median, 99th of a hundred), in ms."""
    path, costs, page = folder / "fsync-probe", [], os.urandom(8192)
    file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.write(file, bytes(len(page) * times))
        os.fsync(file)
        for n in range(times):
            os.pwrite(file, page, n * len(page))
            start = time.monotonic()
            os.fdatasync(file)
            costs.append(1000 * (time.monotonic() - start))
    finally:
        os.close(file)
        path.unlink()
    costs.sort()
    return costs[times // 2], costs[times * 99 // 100]
