"""Faults of the database servers: their processes, disks, roles, tables, and which of them leads."""

import os
import signal
import time
from contextlib import suppress

import psycopg
from kinds import kind, lasting
from lib.relay import run_command
from world import LEASE_MS, ROLE

LEASE_S = LEASE_MS / 1000
OF_RELAYS = f"select pid from pg_stat_activity where datname = current_database() and usename = '{ROLE}'"
TABLES = ("message", "batch", "settlement", "parked", "relay")
REWRITES = ("vacuum full outbox.{}", "reindex table outbox.{}", "analyze outbox.{}",
            "alter table outbox.{} set (fillfactor = 95)")


# --- the primary ---

@kind("PostgreSQL restart fast", "database")
def postgres_fast(world, rng):
    world.postgres.primary.stop("fast")
    world.postgres.primary.up()
    return "fast"


@kind("PostgreSQL SIGTERM", "database")
def postgres_smart(world, rng):
    """Whoever is connected goes on, nobody else is let in."""
    server = world.postgres.primary
    os.kill(server.pids()[0], signal.SIGTERM)
    detail = "smart for " + lasting(rng.uniform(0.5, 3))
    server.stop("fast")
    server.up()
    return detail


@kind("PostgreSQL crash", "database")
def postgres_crash(world, rng):
    world.postgres.primary.stop("immediate")
    detail = lasting(rng.uniform(0, 2))
    world.postgres.primary.up()
    return detail


@kind("PostgreSQL SIGKILL", "database")
def postgres_kill(world, rng):
    world.postgres.primary.kill()
    world.postgres.primary.up()
    return "every process"


@kind("PostgreSQL frozen", "database")
def postgres_frozen(world, rng):
    """Its connections stay open and say nothing."""
    return frozen(world.postgres.primary, rng.uniform(0.2, 2) * LEASE_S)


def frozen(server, seconds):
    server.freeze()
    detail = lasting(seconds)
    server.thaw()
    return detail


@kind("backend terminated", "database")
def backend_terminated(world, rng):
    """Some of the relays' connections."""
    count = world.ask(f"select count(pg_terminate_backend(pid)) from ({OF_RELAYS} order by random() limit {rng.randint(1, 4)}) t")
    return f"{count} backends"


@kind("backend SIGKILL", "database")
def backend_kill(world, rng):
    """The server takes it for a crash, and begins anew by itself."""
    pid = world.ask(f"{OF_RELAYS} order by random() limit 1")
    if not pid:
        return "there was none"
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    world.postgres.primary.up()
    return "one of a relay"


@kind("disk full under pg_wal", "database")
def disk_full(world, rng):
    """Whoever needs a new segment of WAL stops the whole server."""
    server = world.postgres.primary
    if not server.disk.mounted:
        return "left out: mounting is not allowed here"
    server.disk.fill()
    try:
        with world.database.connect(connect_timeout=5) as connection:
            for _ in range(8):
                connection.execute("select pg_logical_emit_message(true, 'chaos', repeat('x', 4000000))")
                connection.execute("select pg_switch_wal()")
        detail = "the server lived on"
    except psycopg.OperationalError:
        detail = "the server stopped"
    detail += ", " + lasting(rng.uniform(0.5, 3))
    server.disk.clear()
    server.up()
    return detail


# --- the replica, whose word every commit waits for ---

@kind("replica SIGKILL", "database", may_double=False)
def replica_kill(world, rng):
    world.postgres.standby.kill()
    detail = "gone for " + lasting(rng.uniform(0, 2))
    world.postgres.standby.up()
    world.postgres.follow()
    return detail


@kind("replica restart", "database", may_double=False)
def replica_restart(world, rng):
    world.postgres.standby.stop("fast")
    world.postgres.standby.up()
    world.postgres.follow()
    return "fast"


@kind("replica frozen", "database")
def replica_frozen(world, rng):
    detail = frozen(world.postgres.standby, rng.uniform(0.2, 2) * LEASE_S)
    world.postgres.follow()
    return detail


@kind("replica promoted", "database")
def replica_promoted(world, rng):
    """The primary is gone, in one way or another: the replica has all that was committed."""
    pair = world.postgres
    manner = rng.choice(["killed", "stopped", "frozen for good"])
    if manner == "killed":
        pair.primary.kill()
    elif manner == "stopped":
        pair.primary.stop("fast")
    else:
        pair.primary.freeze()
    detail = f"the primary {manner}, promoted after " + lasting(rng.uniform(0, 1))
    pair.promote()
    if manner == "frozen for good":
        detail += ", ended after " + lasting(rng.uniform(0, 3) * LEASE_S)
    pair.rebuild()
    pair.follow()
    return detail


@kind("replica promoted, the last second lost", "database")
def replica_promoted_late(world, rng):
    """Nothing waits for the replica, which is cut off before the primary dies."""
    pair = world.postgres
    pair.wait_for_standby(False)
    pair.stream.refuse(True)
    pair.stream.cut()
    detail = lasting(rng.uniform(0.2, 1.2)) + " apart"
    pair.primary.kill()
    promoted_at = time.time()
    pair.promote()
    pair.stream.refuse(False)
    rows, receipts = pair.take_stock(world.database.name, promoted_at)
    pair.rebuild()
    pair.follow()
    return f"{detail}, lost {rows} messages and that {receipts} were sent"


# --- roles ---

def prescribed(world, rng, settings):
    """What holds for every new connection of the relays, for a while."""
    with world.database.connect(connect_timeout=5) as connection:
        for name, value in settings.items():
            connection.execute(f"alter role {ROLE} set {name} = '{value}'")
        connection.execute(f"select pg_terminate_backend(pid) from ({OF_RELAYS}) t")
    detail = f"{settings} for " + lasting(rng.uniform(1, 4))
    with world.database.connect(connect_timeout=5) as connection:
        connection.execute(f"alter role {ROLE} reset all")
        connection.execute(f"select pg_terminate_backend(pid) from ({OF_RELAYS}) t")
    return detail


@kind("time-outs of the role", "database")
def role_timeouts(world, rng):
    names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout")
    return prescribed(world, rng, {name: f"{rng.choice([3, 20, 200])}ms" for name in rng.sample(names, rng.randint(1, 4))})


@kind("serializable by default", "database")
def role_serializable(world, rng):
    return prescribed(world, rng, {"default_transaction_isolation": rng.choice(["serializable", "repeatable read"]),
                                   "default_transaction_deferrable": "on"})


@kind("read-only by default", "database")
def role_read_only(world, rng):
    return prescribed(world, rng, {"default_transaction_read_only": "on"})


@kind("database privilege revoked", "database")
def role_revoked(world, rng):
    with world.database.connect(connect_timeout=5) as connection:
        connection.execute(f"revoke outbox_relay from {ROLE}")
        detail = lasting(rng.uniform(0.5, 4))
        connection.execute(f"grant outbox_relay to {ROLE}")
    return detail


# --- tables ---

@kind("tables locked", "database")
def tables_locked(world, rng):
    names = rng.sample(TABLES, rng.randint(1, 2))
    with world.database.connect(connect_timeout=5) as connection:
        connection.execute("begin")
        for name in names:
            connection.execute(f"lock table outbox.{name} in access exclusive mode")
        detail = f"{' and '.join(names)} for " + lasting(rng.uniform(0.2, 1.8) * LEASE_S)
        connection.execute("commit")
    return detail


@kind("tables altered", "database", may_double=False)
def tables_altered(world, rng):
    """As a migration or a maintenance window does under a running relay."""
    name = rng.choice(TABLES)
    rewrite = rng.choice(REWRITES).format(name)
    with world.database.connect(connect_timeout=5) as connection:
        connection.execute(f"alter table outbox.{name} add column chaos int")
        connection.execute(rewrite)
        detail = f"a column of {name} and {rewrite}, " + lasting(rng.uniform(0, 0.5))
        connection.execute(f"alter table outbox.{name} drop column chaos")
    return detail


@kind("init again", "database", may_double=False)
def init_again(world, rng):
    done = run_command(world.binary, "init", "--postgres", world.database)
    assert done.returncode == 0, done.stdout + done.stderr
    return "denpyo init"
