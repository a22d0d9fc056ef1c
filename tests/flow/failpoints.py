"""An outbox in every kind of trouble, relays that die or freeze at a failpoint in it, and what is to be true when another one is done."""

import os
import random
import signal
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from ledger import Ledger
from lib.devserver import ROOT
from lib.relay import Relay
from lib.wait import wait_until
from verify import java_partition, verify

DELIVERIES = ("at_least_once", "exactly_once")
KEYS = 6
DEADLINE_S = 120
LEASE_MS = 1500
OPTIONS = ("--lease-ms", LEASE_MS, "--batch-rows", 40, "--sweep-interval-ms", 150, "--retry-initial-ms", 50,
           "--poll-idle-ms", 20, "--kafka", "compression.type=none")
INSERT = """
insert into outbox.message (topic, key, payload, available_at)
select %s, %s || i %% %s, repeat('x', %s), %s::timestamptz + %s * interval '1 ms' from generate_series(1, %s) i returning id
"""
PARK = """
insert into outbox.parked (id, relay, message_id, topic, state, next_attempt_at, waits_for_id, first_error_at, claimed_at)
select id, 'default', message_id, topic, %s, %s::timestamptz, %s, now(), now() from outbox.message where id = any (%s)
"""
ALL_RECEIPTED = """
select (select count(*) from outbox.message) = (select coalesce(sum(cardinality(ids)), 0) from outbox.settlement)
       and not exists (select from outbox.parked)
"""
IN_DOUBT = """
select m.id from outbox.batch b join outbox.message m on m.id = any (b.parked_ids) or b.parked_ids is null
and m.id > b.after_id and m.id <= b.upto_id and pg_visible_in_snapshot(m.xid, b.window_to) and not pg_visible_in_snapshot(m.xid, b.window_from)
where b.id > (select coalesce(max(id), 0) from outbox.settlement)
union select id from outbox.parked where state = 'requesting'
"""
OF_A_STOP = "lease_release"  # points that a relay comes to when it is told to stop
BACKENDS = "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'denpyo%'"


@dataclass(frozen=True)
class Point:
    """One line of the binary's table."""

    name: str
    where: str  # any, recovery, exactly_once
    sense: str

    def is_in(self, delivery):
        return self.where != "exactly_once" or delivery == "exactly_once"


@dataclass(frozen=True)
class Case:
    """Relays with these orders run one after the other, then a plain one."""

    delivery: str
    orders: tuple
    is_moved: bool = False  # the database came from another cluster

    def __str__(self):
        return f"{self.delivery}, {' then '.join(self.orders)}" + ", moved" * self.is_moved


def binary():
    """denpyo-failpoints lies beside denpyo."""
    return Path(os.environ.get("DENPYO_BINARY", ROOT / "build" / "denpyo")).absolute().with_name("denpyo-failpoints")


def list_points():
    """The table, as the binary prints it; empty when there is no binary."""
    if not os.access(binary(), os.X_OK):
        return []
    lines = subprocess.run([binary()], env={**os.environ, "DENPYO_FAILPOINT": "list"}, check=True, text=True,
                           capture_output=True).stdout.splitlines()
    return [Point(name, where, sense) for name, _, where, sense in (line.split("\t") for line in lines)]


class Committed:
    """A broker as readers see whom the mode promises something."""

    def __init__(self, kafka, delivery):
        self._kafka = kafka
        self._isolation = "read_committed" if delivery == "exactly_once" else "read_uncommitted"
        self.partitions = kafka.partitions

    def read_all(self, topic):
        return self._kafka.read_all(topic, self._isolation)


class Trouble:
    """
    An outbox with an open batch of which half arrived, settled rows without a trace, parked rows that are failed, held
    and of unknown outcome, one of these arrived; and pending ones, some for later, some for a topic that refuses them as a set.
    A context manager: what runs is killed at its end, and the database dropped.
    """

    def __init__(self, database, kafka, case):
        self.database, self.kafka, self.delivery = database, kafka, case.delivery
        self.wide = kafka.create_topic(partitions=4)
        self.narrow = kafka.create_topic(config={"max.message.bytes": 2000, "compression.type": "producer"})
        self.relays = []
        self.connection = database.connect()
        self._sink()
        if case.is_moved:
            self._sql("update outbox.relay set system_identifier = 1, timeline = 1")
        self.doubtful = self._in_doubt()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        for relay in self.relays:
            relay.kill()
        self.connection.close()
        self.database.drop()
        if isinstance(error, AssertionError):
            raise AssertionError("\n".join([str(error), *(f"--- log of relay {relay.pid}\n{relay.log_text()}"
                                                          for relay in self.relays)])) from None

    def _sql(self, query, *params):
        cursor = self.connection.execute(query, params or None)
        return cursor.fetchall() if cursor.description else []

    def _insert(self, topic, key, count, size=300, delay_ms=0, keys=KEYS):
        """One transaction; the rows' ids."""
        return [row for (row,) in self._sql(INSERT, topic, key, keys, size, "now" if delay_ms else None, delay_ms, count)]

    def _park(self, state, ids, waits_for=None):
        self._sql(PARK, state, None if state == "held" else "now", waits_for, ids)

    def _sink(self):
        ledger = Ledger(self.connection)
        self._insert(self.wide, "swept ", 4, keys=4)
        failed = self._insert(self.wide, "failed ", 4, keys=2)
        unknown = self._insert(self.wide, "unknown ", 3, keys=3)
        ledger.settle(ledger.claim(100), [])
        self._park("failed", failed[:2])
        self._park("held", [failed[2]], failed[0])
        self._park("held", [failed[3]], failed[1])
        self._park("requesting", unknown)
        crashed = self._insert(self.wide, "key ", 24)
        ledger.claim(100)
        self._arrive(crashed[:12] + unknown[:1])
        self._insert(self.wide, "key ", 60)
        self._insert(self.wide, "failed ", 4, keys=2)
        self._insert(self.narrow, "key ", 40, 150)
        self._insert(self.wide, "later ", 5, delay_ms=600, keys=5)

    def _arrive(self, ids):
        """As the producer of a relay wrote them that died before it heard of it."""
        producer = Producer(self.kafka.client)
        for message_id, key, payload in self._sql(
                "select message_id::text, key, payload from outbox.message where id = any (%s) order by id", ids):
            producer.produce(self.wide, payload, key, partition=java_partition(key.encode(), 4), headers=[("id", message_id)])
        assert producer.flush(20) == 0, "no answer from the broker"

    def add_more(self):
        """A later window, while a relay runs."""
        self._insert(self.wide, "key ", 12)

    def keep_busy(self):
        """More of all that a running relay can meet again, once it has nothing left: how often it passes a point depends on the machine."""
        if self.all_receipted():
            self.add_more()
            self._insert(self.narrow, "key ", 40, 150)

    def all_receipted(self):
        return self._sql(ALL_RECEIPTED)[0][0]

    # --- relays ---

    def start(self, program, order=None):
        flags = [*OPTIONS, "--delivery", self.delivery]
        if self.delivery == "exactly_once":
            flags += ["--transactional-id", self.database.name]
        self.relays.append(Relay(program, "--postgres", self.database, "--brokers", self.kafka.bootstrap, *flags,
                                 env={"DENPYO_FAILPOINT": order} if order else None))
        return self.relays[-1]

    def run_to(self, relay, is_there, what):
        """Gives it work until it stops or dies where it was told to."""
        wait_until(lambda: is_there(relay) or self.keep_busy(), DEADLINE_S, what)

    def run_to_end(self, relay):
        """Until it dies, or everything has a receipt: then it is stopped. The exit code."""
        wait_until(lambda: not relay.running or self.all_receipted(), DEADLINE_S, "the last receipt, or the relay's death")
        return relay.stop(DEADLINE_S)

    def expire(self):
        """The dead relay's statements come to their end; then nobody needs to wait for its lease."""
        wait_until(lambda: self._sql(BACKENDS)[0][0] == 0, DEADLINE_S, "the end of the dead relay's connections")
        self._sql("update outbox.relay set lease_expires_at = now()")
        self.note_doubts()

    # --- what is to be true ---

    def _in_doubt(self):
        return {row for (row,) in self._sql(IN_DOUBT)}

    def note_doubts(self):
        """What is on its way now may come twice, where that is not excluded."""
        self.doubtful |= self._in_doubt()

    def judge(self):
        """Raises unless all is where it should be; how many second copies there are."""
        verdict = verify(self.database, Committed(self.kafka, self.delivery), [self.wide, self.narrow])
        excused = set() if self.delivery == "exactly_once" else self.doubtful
        assert verdict.at_least_once() and set(verdict.doubled) <= excused, verdict
        assert self.all_receipted(), "something is parked or without receipt"
        return len(verdict.doubled)


class Runner:
    """Runs cases, any number at once, on servers and with a template that are somebody else's."""

    def __init__(self, denpyo, postgres, kafka, template):
        self.denpyo, self.postgres, self.kafka, self.template = denpyo, postgres, kafka, template
        self.doubled = Counter()

    def _trouble(self, case):
        return Trouble(self.postgres.create_database(self.template.name), self.kafka, case)

    def count(self, case):
        """How often a relay that nothing happens to passes each point: {name: times}."""
        with self._trouble(case) as trouble:
            relay = trouble.start(binary(), "count")
            trouble.add_more()
            assert trouble.run_to_end(relay) == 0, "it failed by itself"
            relay.wait_log("sweep_answered\t")
            trouble.judge()
            cells = [line.split("\t") for line in relay.lines]
            return {words[0]: int(words[1]) for words in cells if len(words) == 4}

    def die(self, case):
        """Every ordered relay has to die where it was told to; a plain one follows."""
        with self._trouble(case) as trouble:
            for number, order in enumerate(case.orders):
                relay = trouble.start(binary(), order)
                if number == 0:
                    trouble.add_more()
                if order.startswith(OF_A_STOP):
                    trouble.run_to_end(relay)
                trouble.run_to(relay, lambda relay: not relay.running, f"its death at {order}")
                code = relay.wait()
                assert code == -signal.SIGKILL, f"{order} was not passed, the exit code is {code}"
                trouble.expire()
            last = trouble.start(self.denpyo)
            last.wait_log("leading", DEADLINE_S)
            assert trouble.run_to_end(last) == 0, "the last relay failed"
            self.doubled[str(case)] = trouble.judge()

    def freeze(self, case):
        """The relay stands still at the point for longer than its lease, another one does all the work, then it goes on."""
        with self._trouble(case) as trouble:
            frozen = trouble.start(binary(), case.orders[0] + ":stop")
            trouble.add_more()
            trouble.run_to(frozen, _is_stopped, "its stop")
            trouble.note_doubts()
            successor = trouble.start(self.denpyo)
            wait_until(trouble.all_receipted, DEADLINE_S, "the last receipt")
            before = len(frozen.lines)
            frozen.signal(signal.SIGCONT)
            wait_until(lambda: not frozen.running or _has_yielded(frozen.lines[before:]), DEADLINE_S,
                       "the frozen relay's stepping down")
            assert frozen.stop(DEADLINE_S) == 0 and successor.stop(DEADLINE_S) == 0, "a relay failed"
            self.doubled[str(case)] = trouble.judge()


def _is_stopped(relay):
    return Path(f"/proc/{relay.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


def _has_yielded(lines):
    return any("stepping down" in line or "standby: another relay leads" in line for line in lines)


def draw_passing(times, name):
    """A passing that a relay will come to although no run is quite like another; what goes by the clock comes once at least."""
    by_clock = name.startswith(("lease_", "sweep_"))
    return 1 if by_clock else random.Random(name).randint(1, max(1, times // 2))
