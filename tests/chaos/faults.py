"""The kinds of fault: each breaks one thing, and has mended it when it returns what exactly it did."""

import os
import signal
import time
from contextlib import suppress

import psycopg
from lib.wait import wait_until
from world import LEASE_MS

LEASE_S = LEASE_MS / 1000
SQUEEZED_BYTES = 2000
USUAL_BYTES = 1_048_588
KINDS = {}


class Kind:
    """
    A fault by name. Two whose parts of the world differ may come at once. may_double: an unknown outcome can come of
    it, and with it a second copy.
    """

    def __init__(self, name, part, run, may_double):
        self.name, self.part, self.run, self.may_double = name, part, run, may_double


def kind(name, part, may_double=True):
    def register(function):
        KINDS[name] = Kind(name, part, function, may_double)
        return function
    return register


def lasting(seconds):
    """The time a fault lasts is what it is about; nothing is waited for here."""
    time.sleep(seconds)
    return f"{seconds:.2f} s"


# --- the relays ---

def frozen(slot, seconds):
    slot.relay.signal(signal.SIGSTOP)
    detail = lasting(seconds)
    slot.relay.signal(signal.SIGCONT)
    return f"{slot.name}, {detail}"


@kind("leader SIGKILL", "relays")
def leader_kill(world, rng):
    slot = world.leader()
    slot.ask(signal.SIGKILL)
    return slot.name


@kind("standby SIGKILL", "relays", may_double=False)
def standby_kill(world, rng):
    slot = world.standby()
    slot.ask(signal.SIGKILL)
    return slot.name


@kind("both relays SIGKILL", "relays")
def both_kill(world, rng):
    for slot in world.slots:
        slot.ask(signal.SIGKILL)
    return "both"


@kind("leader SIGTERM", "relays", may_double=False)
def leader_term(world, rng):
    slot = world.leader()
    slot.ask(signal.SIGTERM)
    return slot.name


@kind("standby SIGTERM", "relays", may_double=False)
def standby_term(world, rng):
    slot = world.standby()
    slot.ask(signal.SIGTERM)
    return slot.name


@kind("leader frozen within lease", "relays")
def leader_frozen_short(world, rng):
    return frozen(world.leader(), rng.uniform(0.1, 0.5) * LEASE_S)


@kind("leader frozen beyond lease", "relays")
def leader_frozen_long(world, rng):
    return frozen(world.leader(), rng.uniform(1.2, 2) * LEASE_S)


@kind("standby frozen", "relays", may_double=False)
def standby_frozen(world, rng):
    return frozen(world.standby(), rng.uniform(0.2, 1.5) * LEASE_S)


# --- the database ---

def send_to(pids, number):
    """Some may have ended meanwhile."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@kind("PostgreSQL restart fast", "database")
def postgres_fast(world, rng):
    world.postgres.stop("fast")
    world.postgres_up()
    return "fast"


@kind("PostgreSQL crash", "database")
def postgres_crash(world, rng):
    world.postgres.stop("immediate")
    detail = lasting(rng.uniform(0, 2))
    world.postgres_up()
    return detail


@kind("PostgreSQL frozen", "database")
def postgres_frozen(world, rng):
    """Its connections stay open and say nothing."""
    pids = world.postgres_pids()
    send_to(pids, signal.SIGSTOP)
    detail = lasting(rng.uniform(0.2, 2) * LEASE_S)
    send_to(pids, signal.SIGCONT)
    return detail


@kind("backend terminated", "database")
def backend_terminated(world, rng):
    """Some of the relays' connections; they are those that nobody named a writer."""
    count = world.ask("select count(pg_terminate_backend(pid)) from (select pid from pg_stat_activity where"
                      " datname = current_database() and pid <> pg_backend_pid() and application_name not like 'writer%'"
                      f" order by random() limit {rng.randint(1, 4)}) t")
    return f"{count} backends"


@kind("disk full under pg_wal", "database")
def disk_full(world, rng):
    """Whoever needs a new segment of WAL stops the whole server."""
    if not world.wal_disk.mounted:
        return "left out: mounting is not allowed here"
    world.wal_disk.fill()
    try:
        with world.database.connect(connect_timeout=5) as connection:
            for _ in range(8):
                connection.execute("select pg_logical_emit_message(true, 'chaos', repeat('x', 4000000))")
                connection.execute("select pg_switch_wal()")
        detail = "the server lived on"
    except psycopg.OperationalError:
        detail = "the server stopped"
    detail += ", " + lasting(rng.uniform(0.5, 3))
    world.wal_disk.clear()
    world.postgres_up()
    return detail


# --- the broker ---

@kind("broker SIGKILL", "broker")
def broker_kill(world, rng):
    broker = rng.choice(world.brokers)
    broker.kill()
    broker.start()
    return broker.folder.name


@kind("broker restart", "broker")
def broker_restart(world, rng):
    broker = rng.choice(world.brokers)
    broker.stop()
    broker.start()
    return broker.folder.name


@kind("broker frozen", "broker")
def broker_frozen(world, rng):
    broker = rng.choice(world.brokers)
    broker.freeze()
    detail = lasting(rng.uniform(0.5, 8))
    broker.thaw()
    return f"{broker.folder.name}, {detail}"


# --- the network ---

def cut(proxy, rng):
    proxy.refuse(True)
    proxy.cut()
    detail = lasting(rng.choice([0, rng.uniform(0.1, 2)]))
    proxy.refuse(False)
    return f"refused for {detail}"


def delayed(proxy, rng):
    delay_ms = rng.randint(20, 400)
    proxy.delay(delay_ms / 1000)
    detail = lasting(rng.uniform(1, 4))
    proxy.delay(0)
    return f"{delay_ms} ms for {detail}"


def silenced(proxy, rng):
    proxy.silence()
    detail = lasting(rng.uniform(0.2, 2.2) * LEASE_S)
    ends_cut = rng.random() < 0.5
    if ends_cut:
        proxy.cut()
    proxy.speak()
    return detail + (", then cut" if ends_cut else "")


for place in ("postgres", "kafka"):
    for manner, function in (("cut", cut), ("delayed", delayed), ("silent", silenced)):
        kind(f"network to {place} {manner}", f"network to {place}")(
            lambda world, rng, place=place, function=function: function(rng.choice(world.proxies[place]), rng))


# --- topics ---

@kind("topic squeezed", "broker")
def topic_squeezed(world, rng):
    """For a while the topic takes no large message: those are rejected, and only those."""
    world.squeezed_to = SQUEEZED_BYTES
    world.kafka.alter_config("squeezed", {"max.message.bytes": SQUEEZED_BYTES})
    detail = lasting(rng.uniform(2, 5))
    world.kafka.alter_config("squeezed", {"max.message.bytes": USUAL_BYTES})
    return detail


@kind("permission revoked", "broker")
def permission_revoked(world, rng):
    """Nobody may write to one topic for a while."""
    words = ["--deny-principal", "User:*", "--operation", "Write", "--topic", "events"]
    world.acls("--add", *words)
    detail = lasting(rng.uniform(1, 4))
    world.acls("--remove", "--force", *words)
    return detail


@kind("topic deleted and made anew", "broker")
def topic_recreated(world, rng):
    partitions = world.kafka.partitions("mortal")
    world.kafka.delete_topic("mortal")
    world.mortal_until = time.time() + 1  # the broker's parts learn of it one after the other
    detail = "gone for " + lasting(rng.uniform(0, 3))
    wait_until(lambda: _is_made(world, partitions), 30, "the topic's return")
    return detail


def _is_made(world, partitions):
    """False while the name is still being freed."""
    if "mortal" in world.kafka.topics():
        return world.kafka.partitions("mortal") == partitions
    world.kafka.create_topic("mortal", partitions)
    return True
