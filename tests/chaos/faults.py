"""Faults of relays, brokers, topics and the network."""

import signal
import time

import acls
from kinds import kind, lasting
from lib.wait import wait_until
from world import LEASE_MS

LEASE_S = LEASE_MS / 1000
SQUEEZED_BYTES = 2000
USUAL_BYTES = 1_048_588
MOST_PARTITIONS = 60


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


for place in ("postgres", "kafka", "replica"):
    for manner, function in (("cut", cut), ("delayed", delayed), ("silent", silenced)):
        kind(f"network to {place} {manner}", f"network to {place}")(
            lambda world, rng, place=place, function=function: function(rng.choice(world.proxies[place]), rng))


# --- the pooler ---


@kind("pooler SIGKILL", "pooler")
def pooler_kill(world, rng):
    world.pooler.kill()
    detail = "gone for " + lasting(rng.uniform(0, 2))
    world.pooler.start()
    return detail


@kind("pooler restart", "pooler")
def pooler_restart(world, rng):
    world.pooler.stop()
    world.pooler.start()
    return "SIGTERM"


@kind("pooler frozen", "pooler")
def pooler_frozen(world, rng):
    world.pooler.process.send_signal(signal.SIGSTOP)
    detail = lasting(rng.uniform(0.2, 2) * LEASE_S)
    world.pooler.process.send_signal(signal.SIGCONT)
    return detail


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
    rule = (world.kafka.bootstrap, "deny", "write", "events")
    acls.add(*rule)
    detail = lasting(rng.uniform(1, 4))
    acls.remove(*rule)
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


@kind("partitions raised", "broker")
def partitions_raised(world, rng):
    """Keys move to other partitions, up to a bound."""
    counts = world.partition_counts["growing"]
    if counts[-1] >= MOST_PARTITIONS:
        return f"left out: there are {counts[-1]} already"
    counts.append(counts[-1] + 1)
    world.kafka.add_partitions("growing", counts[-1])
    return f"to {counts[-1]}"
