"""The world that chaos breaks: two databases, brokers, proxies in front of all, two relays, and topics with a history."""

import random
import re
from contextlib import ExitStack

import acls
import failpoints
import psycopg
from broker import Broker
from lib.bouncer import Bouncer, new_folder
from lib.devserver import Folders, free_port
from lib.relay import Relay, run_command
from pair import Pair
from proxy import Proxy
from slot import Slot

LEASE_MS = 3000
ROLE = "chaos_relay"
RELAY_OPTIONS = ("--lease-ms", LEASE_MS, "--retry-max-ms", 2000, "--metadata-refresh-ms", 1000, "--batch-close-ms", 2000)
POOLER_SETTINGS = {"server_login_retry": 1, "server_connect_timeout": 3, "query_wait_timeout": 10}
TOPICS = {"orders": 6, "events": 3, "squeezed": 3, "mortal": 2, "growing": 2}


class World:
    """
    A context manager that sets everything up, and takes it down. One relay knows both database servers, the other one
    goes through a pooler.
    """

    def __init__(self, binary, mode, brokers, seed):
        self.binary, self.mode, self._broker_count = binary, mode, brokers
        rng = random.Random(f"{seed} world")
        self.batch_rows = rng.choice([50, 400, 5000])
        self.distance_ms = rng.choice([0, 2, 10])
        self.mortal_until = 0  # rows of topic `mortal` that were claimed before may be gone with it
        self.squeezed_to = None  # the smallest limit that topic `squeezed` ever had
        self.partition_counts = {"growing": [TOPICS["growing"]]}  # all that a topic ever had

    def __str__(self):
        return (f"{self._broker_count} broker(s), {self.distance_ms} ms away; batches of at most {self.batch_rows} rows,"
                f" lease {LEASE_MS} ms")

    def __enter__(self):
        return self.open()

    def __exit__(self, *_):
        self.close()

    def open(self):
        """Sets everything up, and takes down what there is if that fails."""
        with ExitStack() as stack:
            self._set_up(stack)
            self._stack = stack.pop_all()
        return self

    def close(self):
        self._stack.close()

    def _set_up(self, stack):
        folders = Folders()
        stack.callback(folders.close)
        self.postgres = Pair(folders, stack)
        self.database = self.postgres.create_database()
        done = run_command(self.binary, "init", "--postgres", self.database)
        assert done.returncode == 0, done.stdout + done.stderr
        self.database.execute(f"create role {ROLE} login in role outbox_relay")
        self._set_up_pooler(folders, stack)
        self._set_up_brokers(folders, stack)
        self.proxies = {"postgres": [node.proxy for node in self.postgres.nodes] + [self.pooler_proxy],
                        "replica": [self.postgres.stream], "kafka": self.kafka_proxies}
        self.slots = []
        stack.callback(self._kill_relays)
        for name in ("relay-a", "relay-b"):
            self.slots.append(Slot(name, lambda order, name=name: self._start_relay(name, order)))

    def _set_up_pooler(self, folders, stack):
        folder = new_folder(folders, "pgbouncer", self.postgres.primary.datadir)
        self.pooler = Bouncer(folder, self.database.name, self.postgres.primary, ROLE, POOLER_SETTINGS)
        stack.callback(self.pooler.close)
        self.postgres.on_promotion = self.pooler.exchange
        self.pooler_proxy = Proxy(free_port(), self.pooler.port)
        stack.callback(self.pooler_proxy.close)

    def _set_up_brokers(self, folders, stack):
        self.brokers, self.kafka_proxies = [], []
        for node in range(1, self._broker_count + 1):
            first = self.brokers[0] if self.brokers else None
            self.brokers.append(Broker(folders.new("kafka"), node, first, self._broker_count))
            stack.callback(self.brokers[-1].kill)
        self.kafka = self.brokers[0]
        for broker in self.brokers:
            self.kafka_proxies.append(Proxy(broker.proxy_port, broker.relay_port, self.distance_ms / 1000))
            stack.callback(self.kafka_proxies[-1].close)
        for name, partitions in TOPICS.items():
            self.kafka.create_topic(name, partitions)
        acls.add(self.kafka.bootstrap, "allow", "all", "events")

    def _start_relay(self, name, order):
        options = (*RELAY_OPTIONS, "--batch-rows", self.batch_rows)
        if self.mode == "exactly_once":
            options += ("--delivery", "exactly_once", "--transactional-id", "chaos")
        if name == "relay-a":
            ports = [node.proxy.port for node in sorted(self.postgres.nodes, key=lambda node: node.port)]
        else:
            ports = [self.pooler_proxy.port]
            options += ("--no-prepare",)
        database = (f"host={','.join(['127.0.0.1'] * len(ports))} port={','.join(map(str, ports))}"
                    f" user={ROLE} dbname={self.database.name}")
        brokers = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.kafka_proxies)
        program, env = (failpoints.binary(), {"DENPYO_FAILPOINT": order}) if order else (self.binary, None)
        return Relay(program, "--postgres", database, "--brokers", brokers, *options, env=env)

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
