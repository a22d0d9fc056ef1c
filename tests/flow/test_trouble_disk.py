"""A full disk under PostgreSQL: the relay waits, says so once, and goes on when there is room again."""

import signal
import subprocess
from contextlib import closing

import psycopg
import pytest
from outbox import Outbox
from verify import verify

from lib.postgres import Postgres
from lib.wait import wait_until

ROWS = 100_000
SIZE = "size=400m"


@pytest.fixture
def small_disk(folders):
    """A folder on a file system of its own that is easily filled."""
    folder = folders.new("disk")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", SIZE, "tmpfs", folder], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"needs the right to mount: {mounted.stderr.strip()}")
    folder.chmod(0o755)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def server(small_disk):
    made = Postgres(small_disk, settings={"max_wal_size": "48MB", "min_wal_size": "32MB", "autovacuum": "off"})
    yield made
    made.stop("immediate")


def fill(folder):
    """A file that takes all the room there is."""
    ballast = folder / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        size = 1 << 20
        while size >= 512:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
    return ballast


def relay_came_back(server, seen):
    """True when the relay has connected three times, or PostgreSQL has ended itself for want of room. Its log cannot be asked: it is on
    the full disk as well."""
    try:
        with closing(server.connect(connect_timeout=5)) as connection:
            rows = connection.execute("select pid from pg_stat_activity where application_name = 'denpyo settle'").fetchall()
    except psycopg.OperationalError:
        return True
    seen |= {pid for (pid,) in rows}
    return len(seen) >= 3


def test_a_full_disk_is_waited_for(server, small_disk, new_database, initialise, kafka, relay):
    """It fills while the relay stands still before a backlog: claims or settlements fail, again and again, until it is freed."""
    database, topic = initialise(new_database(server)), kafka.create_topic(partitions=3)
    running = relay(database, "--lease-ms", "60000")
    with closing(Outbox(database)) as outbox:
        outbox.generate(topic, 1000)
        outbox.wait_dispatched(1000, topic)
        running.signal(signal.SIGSTOP)
        outbox.generate(topic, ROWS, first=1001, payload="repeat('x', 100) || n")
    ballast = fill(small_disk)
    try:
        running.signal(signal.SIGCONT)
        running.wait_log("database trouble", 60)
        seen = set()
        wait_until(lambda: relay_came_back(server, seen), 60, "trouble that lasts")
    finally:
        ballast.unlink()
    server.start()
    with closing(Outbox(database)) as outbox:
        outbox.generate(topic, 1000, first=ROWS + 1001)
        outbox.wait_dispatched(ROWS + 2000, topic, 120)
        outbox.wait_resolved()
    running.wait_log("database is back")
    verdict = verify(database, kafka, [topic])
    print(verdict)
    assert verdict.exactly_once(), verdict
    assert running.log_text().count("database is back") == 1, "a line for each attempt"
    assert running.stop() == 0
