"""The world that chaos breaks: a database, a broker, proxies in front of both, two relays, and topics with a history."""

import os
import random
import re
import shutil
import subprocess
import threading
import time
from contextlib import ExitStack, suppress

import psycopg
from confluent_kafka.admin import NewTopic
from lib.devserver import Folders, devserver, free_port
from lib.kafka import Kafka
from lib.postgres import Postgres
from lib.relay import Relay, run_command
from lib.wait import wait_until
from proxy import Proxy

LEASE_MS = 3000
WAL_DISK_MB = 192
SERVER_SETTINGS = {"max_prepared_transactions": 50, "max_connections": 60, "max_wal_size": "64MB", "min_wal_size": "32MB",
                   "shared_buffers": "32MB", "wal_recycle": "off"}
RELAY_OPTIONS = ("--lease-ms", LEASE_MS, "--retry-max-ms", 2000, "--metadata-refresh-ms", 1000)
EXIT_UNREACHABLE = {3, 4}  # a relay that starts while a server is away says so and leaves
TOPICS = {"orders": 6, "events": 3, "squeezed": 3, "mortal": 2}


class Broker(Kafka):
    """
    One broker of a cluster whose first one is the controller, too. A second listener sends whoever asks it for addresses to
    a proxy, and so on to wherever that forwards: the relays see the cluster through proxies, the judge does not.
    """

    def __init__(self, folder, node, first=None, replicas=1):
        self.node, self.replicas = node, replicas
        self.relay_port, self.proxy_port = free_port(), free_port()
        self._first = first or self
        super().__init__(folder)

    def start(self):
        controls = self._first is self
        self.properties = {
            "node.id": self.node,
            "process.roles": "broker,controller" if controls else "broker",
            "controller.quorum.voters": f"1@127.0.0.1:{self._first.controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap},RELAY://127.0.0.1:{self.relay_port}"
                         + f",CONTROLLER://127.0.0.1:{self.controller_port}" * controls,
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap},RELAY://127.0.0.1:{self.proxy_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,RELAY:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "replica.lag.time.max.ms": 5000,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "offsets.topic.replication.factor": self.replicas,
            "transaction.state.log.replication.factor": self.replicas,
            "transaction.state.log.min.isr": self._least_in_sync(),
            "min.insync.replicas": self._least_in_sync(),
        }
        if not controls:
            self._join_cluster()
        super().start()

    def _least_in_sync(self):
        return 2 if self.replicas > 2 else 1

    def _join_cluster(self):
        """A broker that is no controller needs no more of a formatted storage than to whom it belongs."""
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        if not (data / "meta.properties").exists():
            first = (self._first.folder / "data" / "meta.properties").read_text()
            (cluster,) = re.findall(r"^cluster\.id=.*$", first, re.MULTILINE)
            (data / "meta.properties").write_text(f"version=1\n{cluster}\nnode.id={self.node}\n")

    def create_topic(self, name=None, partitions=1, config=None):
        topic = NewTopic(name, num_partitions=partitions, replication_factor=self.replicas, config=config or {})
        self.admin.create_topics([topic])[name].result(30)
        wait_until(lambda: len(self._led_partitions(name)) == partitions, 30, f"topic {name}")
        return name


class WalDisk:
    """A small file system under pg_wal. There is none where mounting is not allowed: then `mounted` is False."""

    def __init__(self, postgres):
        self.folder = postgres.folder / "wal-disk"
        self.folder.mkdir()
        self.mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={WAL_DISK_MB}M,mode=700", "tmpfs", self.folder],
                                      capture_output=True).returncode == 0
        if self.mounted:
            postgres.stop()
            wal = postgres.datadir / "pg_wal"
            owner = wal.stat()
            shutil.copytree(wal, self.folder / "pg_wal")
            for path in (self.folder, *self.folder.rglob("*")):
                os.chown(path, owner.st_uid, owner.st_gid)
            shutil.rmtree(wal)
            wal.symlink_to(self.folder / "pg_wal")
            postgres.start()

    def fill(self):
        with suppress(OSError), open(self.folder / "filler", "wb", buffering=0) as filler:
            while True:
                filler.write(b"\0" * 4096)

    def clear(self):
        (self.folder / "filler").unlink(missing_ok=True)

    def close(self):
        if self.mounted:
            subprocess.run(["umount", "-l", self.folder], check=False)


class Slot:
    """A place where a relay always runs: one that exits is followed by a new one, until stop()."""

    def __init__(self, name, start):
        self.name, self._start = name, start
        self.exits = []  # (time, exit code, what was asked for: None, SIGTERM or SIGKILL)
        self.log = []  # of relays that are gone
        self._asked = None
        self._end = threading.Event()
        self.relay = start()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self):
        while True:
            code = self.relay.process.wait()
            self.exits.append((time.time(), code, self._asked))
            self.log += [f"--- {self.name}, process {self.relay.pid}, exit code {code}", *self.relay.lines]
            self._asked = None
            if self._end.wait(0.2):
                return
            self.relay = self._start()

    def ask(self, number):
        """Sends a signal that ends the process, and waits until its successor runs."""
        gone = self.relay
        self._asked = number
        gone.signal(number)
        wait_until(lambda: self.relay is not gone, 60, f"the end of {self.name} after signal {number}")

    def stop(self):
        """SIGTERM at last: the exit code."""
        self._end.set()
        self._asked = 15
        with suppress(ProcessLookupError):
            self.relay.signal(15)
        try:
            return self.relay.wait(60)
        finally:
            self.relay.kill()
            self._thread.join(10)

    def troubles(self):
        """Exits that nothing explains."""
        for moment, code, asked in self.exits:
            explained = {None: EXIT_UNREACHABLE, 15: {0, -15} | EXIT_UNREACHABLE, 9: {-9}}[asked]
            if code not in explained:
                yield f"{self.name} exited with {code} at {moment:.3f} (signal sent: {asked})"


class World:
    """A context manager that sets everything up, and takes it down."""

    def __init__(self, binary, mode, brokers, seed):
        self.binary, self.mode, self._broker_count = binary, mode, brokers
        rng = random.Random(f"{seed} world")
        self.batch_rows = rng.choice([50, 400, 5000])
        self.distance_ms = rng.choice([0, 2, 10])
        self.mortal_until = 0  # rows of topic `mortal` that were claimed before may be gone with it
        self.squeezed_to = None  # the smallest limit that topic `squeezed` ever had

    def __str__(self):
        return (f"{self._broker_count} broker(s), {self.distance_ms} ms away; batches of at most {self.batch_rows} rows,"
                f" lease {LEASE_MS} ms")

    def __enter__(self):
        with ExitStack() as stack:
            self._set_up(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _set_up(self, stack):
        folders = Folders()
        stack.callback(folders.close)
        self.postgres = Postgres(folders.new("postgres"), settings=SERVER_SETTINGS)
        stack.callback(self.postgres.stop, "immediate")
        self.wal_disk = WalDisk(self.postgres)
        stack.callback(self.wal_disk.close)
        self.brokers = []
        for node in range(1, self._broker_count + 1):
            first = self.brokers[0] if self.brokers else None
            self.brokers.append(Broker(folders.new("kafka"), node, first, self._broker_count))
            stack.callback(self.brokers[-1].kill)
        self.kafka = self.brokers[0]
        to_kafka = [(broker.proxy_port, broker.relay_port, self.distance_ms / 1000) for broker in self.brokers]
        self.proxies = {"postgres": [Proxy(free_port(), self.postgres.port)], "kafka": [Proxy(*way) for way in to_kafka]}
        for proxy in sum(self.proxies.values(), []):
            stack.callback(proxy.close)
        self.database = self.postgres.create_database()
        done = run_command(self.binary, "init", "--postgres", self.database)
        assert done.returncode == 0, done.stdout + done.stderr
        for name, partitions in TOPICS.items():
            self.kafka.create_topic(name, partitions)
        self.acls("--add", "--allow-principal", "User:*", "--operation", "All", "--topic", "events")
        self.slots = []
        stack.callback(self._kill_relays)
        for name in ("relay-a", "relay-b"):
            self.slots.append(Slot(name, self._start_relay))

    def _start_relay(self):
        options = (*RELAY_OPTIONS, "--batch-rows", self.batch_rows)
        if self.mode == "exactly_once":
            options += ("--delivery", "exactly_once", "--transactional-id", "chaos")
        database = self.postgres.conninfo(self.database.name, port=self.proxies["postgres"][0].port)
        brokers = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies["kafka"])
        return Relay(self.binary, "--postgres", database, "--brokers", brokers, *options)

    def _kill_relays(self):
        for slot in self.slots:
            slot._end.set()
            slot.relay.kill()

    def looked_up(self):
        """How many rows the relays found open when they took over, and how many of those had arrived, by their logs."""
        lines = "\n".join(line for slot in self.slots for line in (*slot.log, *slot.relay.lines))
        found = re.findall(r"looked up what arrived before the restart messages=(\d+) arrived=(\d+)", lines)
        return {"looked up after a crash": sum(int(messages) for messages, _ in found),
                "of these had arrived": sum(int(arrived) for _, arrived in found)}

    # --- what is asked while things break ---

    def ask(self, query, default=None):
        """One value from the database; default while it does not answer, or has none."""
        try:
            with self.database.connect(connect_timeout=5) as connection:
                row = connection.execute(query).fetchone()
                return default if row is None else row[0]
        except psycopg.OperationalError:
            return default

    def newest_receipt(self):
        return self.ask("select coalesce(max(id), 0) from outbox.settlement", 0)

    def leader(self):
        """The slot that leads by the database's word, else any; and whether the word was there."""
        info = self.ask("select holder_info from outbox.leader where has_lease", "") or ""
        pid = re.search(r"pid (\d+)", info)
        return next((slot for slot in self.slots if pid and slot.relay.pid == int(pid[1])), self.slots[0])

    def standby(self):
        leader = self.leader()
        return next(slot for slot in self.slots if slot is not leader)

    # --- what faults need ---

    def acls(self, *words):
        """Changes who may do what, with Kafka's own command."""
        devserver("kafka", "acls", "--bootstrap-server", self.kafka.bootstrap, *words)

    def postgres_pids(self):
        """The server's processes, the first one foremost: while it stands still there come no others."""
        first = int((self.postgres.datadir / "postmaster.pid").read_text().split()[0])
        children = subprocess.run(["pgrep", "-P", str(first)], capture_output=True, text=True).stdout
        return [first, *map(int, children.split())]

    def postgres_up(self):
        """Starts the server as often as it takes."""
        def is_up():
            with suppress(AssertionError):
                self.postgres.start()
            return self.ask("select true", False)
        wait_until(is_up, 90, "PostgreSQL's return")
