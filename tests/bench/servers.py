"""Private PostgreSQL and Kafka servers for a benchmark, started by deploy/devserver, and what they cost in CPU time."""
import os
import pathlib
import subprocess
import time

import psycopg
from confluent_kafka.admin import AdminClient, NewTopic

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVSERVER = ROOT / "deploy" / "devserver"
PARTITIONS = 8

# A checkpoint or an autovacuum in one of two runs would decide the comparison; durability stays on.
POSTGRES_SETTINGS = {
    "shared_buffers": "1GB", "max_wal_size": "16GB", "checkpoint_timeout": "1h", "autovacuum": "off",
    "max_connections": "100",
}


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

    def __init__(self, folder, port):
        self.folder, self.port = folder / "postgres", port
        settings = [word for item in POSTGRES_SETTINGS.items() for word in ("-c", "=".join(item))]
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

    def copy(self, template, database):
        """A fresh copy of `template`, read once so that it is in the server's memory, behind a checkpoint."""
        self.drop(database)
        self.admin.execute(f"create database {database} template {template} strategy file_copy")
        with self.connect(database) as db:
            db.execute("select count(*), sum(length(payload)) from outbox.message")
            db.execute("set enable_seqscan = off")
            db.execute("select count(*) from outbox.message where id > 0")
            db.execute("select count(*) from outbox.message where xid >= '0'")
        self.admin.execute("checkpoint")

    def drop(self, database):
        self.admin.execute(f"drop database if exists {database}")


class Kafka:
    """A broker of its own."""

    def __init__(self, folder, port):
        self.folder, self.brokers = folder / "kafka", f"127.0.0.1:{port}"
        subprocess.run([DEVSERVER, "kafka", "start", self.folder, str(port)], check=True, stdout=subprocess.DEVNULL)
        self.admin = AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})
        self.pid = int((self.folder / "kafka.pid").read_text())

    def fresh_topic(self, name):
        """An empty topic of 8 partitions, whatever bore the name before."""
        if name in self.admin.list_topics(timeout=10).topics:
            self.delete_topic(name)
        wait_until(lambda: self.create(name), 30, f"new topic {name}")
        wait_until(lambda: self.has_leaders(name), 30, f"leaders of topic {name}")

    def create(self, name):
        """False while the name is still being freed."""
        future = self.admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name]
        return future.exception() is None

    def has_leaders(self, name):
        topic = self.admin.list_topics(name, timeout=10).topics[name]
        return len(topic.partitions) == PARTITIONS and all(p.leader >= 0 for p in topic.partitions.values())

    def delete_topic(self, name):
        self.admin.delete_topics([name])[name].result()
        wait_until(lambda: name not in self.admin.list_topics(timeout=10).topics, 30, f"end of topic {name}")


def stop_servers(folder):
    """Stops what runs in `folder`, also what was only starting; its data are not needed any more."""
    subprocess.run([DEVSERVER, "postgres", "stop", folder / "postgres", "immediate"], check=False)
    subprocess.run([DEVSERVER, "kafka", "stop", folder / "kafka", "--kill"], check=False)
