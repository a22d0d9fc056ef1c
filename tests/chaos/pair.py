"""Two PostgreSQL servers: one is the primary, the other its streaming standby, and a failover lets them change places."""

import os
import shutil
import subprocess
from contextlib import suppress

import psycopg
from lib.bouncer import as_owner
from lib.devserver import free_port
from lib.postgres import Postgres
from lib.wait import wait_until
from proxy import Proxy

WAL_DISK_MB = 192
DEADLINE_S = 60
SERVER_SETTINGS = {
    "max_prepared_transactions": 50, "max_connections": 80, "max_wal_size": "64MB", "min_wal_size": "32MB",
    "shared_buffers": "32MB", "wal_recycle": "off", "wal_keep_size": "48MB", "wal_retrieve_retry_interval": "200ms",
    "wal_receiver_timeout": "8s", "wal_sender_timeout": "8s",
}
SENT = """
select message_id::text from outbox.receipt where settled_at > now() - interval '3 minutes'
union select message_id::text from outbox.status where state = 'requesting'
"""
WRITTEN = "select message_id::text from outbox.message where created_at > now() - interval '5 minutes'"
KNOWN = "select message_id::text from outbox.message where message_id = any (%s::uuid[])"
RECEIPTED = "select message_id::text from outbox.receipt where message_id = any (%s::uuid[]) and settled_at < to_timestamp(%s)"


def give(path, owner):
    """The path to whom another path belongs to."""
    os.chown(path, owner.stat().st_uid, owner.stat().st_gid)


class WalDisk:
    """A small file system for pg_wal. There is none where mounting is not allowed: then `mounted` is False, and it is a folder."""

    def __init__(self, folder):
        self.folder = folder / "wal-disk"
        self.folder.mkdir()
        self.mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={WAL_DISK_MB}M,mode=700", "tmpfs", self.folder],
                                      capture_output=True).returncode == 0

    def give_to(self, owner):
        for path in (self.folder, *self.folder.rglob("*")):
            give(path, owner)

    def take(self, datadir):
        """Moves a stopped server's pg_wal here."""
        wal = datadir / "pg_wal"
        shutil.copytree(wal, self.folder / "pg_wal")
        self.give_to(wal)
        shutil.rmtree(wal)
        wal.symlink_to(self.folder / "pg_wal")

    def fill(self):
        with suppress(OSError), open(self.folder / "filler", "wb", buffering=0) as filler:
            while True:
                filler.write(b"\0" * 4096)

    def clear(self):
        (self.folder / "filler").unlink(missing_ok=True)

    def close(self):
        if self.mounted:
            subprocess.run(["umount", "-l", self.folder], check=False)


class Node(Postgres):
    """One of the two servers, whichever role it has. The relays reach it through `proxy`."""

    def __init__(self, folder, stream_port, source=None):
        if source:
            self.disk = WalDisk(folder)
            self.folder, self.datadir = folder, folder / "data"
            self._copy(source)
        upstream = f"host=127.0.0.1 port={stream_port} user=postgres application_name=standby connect_timeout=3"
        super().__init__(folder, settings=SERVER_SETTINGS | {"primary_conninfo": upstream})
        if not source:
            self.disk = WalDisk(folder)
            if self.disk.mounted:
                self.stop()
                self.disk.take(self.datadir)
                self.start()
        self.proxy = Proxy(free_port(), self.port)

    def _copy(self, source):
        """Makes the data folder a copy of a running server's, to be started as its standby."""
        give(self.folder, source.datadir)
        self.disk.give_to(source.datadir)
        backup = as_owner(self.folder, f"{source.bindir}/pg_basebackup", "-D", self.datadir, "-c", "fast", "--no-sync",
                          "--waldir", self.disk.folder / "pg_wal", "-d", source.conninfo())
        done = subprocess.run(backup, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        for name, text in (("standby.signal", ""), ("postgresql.auto.conf", "")):
            (self.datadir / name).write_text(text)
            give(self.datadir / name, self.folder)

    def copy_anew(self, source):
        shutil.rmtree(self.datadir)
        for path in self.disk.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self._copy(source)

    def up(self):
        """Starts it as often as it takes."""
        troubles = [None]

        def is_up():
            try:
                self.start()
                self.connect(connect_timeout=5).close()
                return True
            except (AssertionError, psycopg.OperationalError) as error:
                troubles.append(error)

        try:
            wait_until(is_up, DEADLINE_S, "PostgreSQL's return")
        except AssertionError as error:
            raise AssertionError(f"{error}: {troubles[-1]}") from None

    def ask(self, query, dbname="postgres"):
        with self.connect(dbname, connect_timeout=5) as connection:
            return connection.execute(query).fetchone()[0]

    def close(self):
        self.kill()
        self.proxy.close()
        self.disk.close()


class Pair:
    """
    A server to whoever makes databases on it: always the primary of the moment. What was committed is on the standby
    as well, unless a fault says otherwise. stream: the proxy between the two.
    """

    def __init__(self, folders, stack):
        stream_port = free_port()
        self.primary = Node(folders.new("postgres"), stream_port)
        stack.callback(self.primary.close)
        self.stream = Proxy(stream_port, self.primary.port)
        stack.callback(self.stream.close)
        self.standby = Node(folders.new("postgres"), stream_port, self.primary)
        stack.callback(self.standby.close)
        self.forgotten = set()  # message ids of rows that a failover lost
        self.forgotten_sent = set()  # those of rows that it no longer knows as sent
        self.on_promotion = lambda primary: None
        self.follow()

    @property
    def nodes(self):
        return [self.primary, self.standby]

    # --- what Database asks of a server ---

    def conninfo(self, dbname="postgres", **more):
        return self.primary.conninfo(dbname, **more)

    def connect(self, dbname="postgres", **more):
        return self.primary.connect(dbname, **more)

    def create_database(self):
        made = self.primary.create_database()
        made.server = self
        return made

    # --- replication ---

    def wait_for_standby(self, waits):
        """Whether a commit waits for the standby from now on."""
        with self.primary.connect() as connection:
            connection.execute(f"alter system set synchronous_standby_names = '{'*' if waits else ''}'")
            connection.execute("select pg_reload_conf()")
        wait_until(lambda: bool(self.primary.ask("show synchronous_standby_names")) == waits, 30, "the new setting")

    def follow(self):
        """Waits until the standby has all that is written, has it copied anew if it cannot, and lets commits wait for it."""
        try:
            self._wait_caught_up(10)
        except AssertionError:
            self.wait_for_standby(False)
            self.rebuild()
        self.wait_for_standby(True)
        self._wait_caught_up(DEADLINE_S)

    def _wait_caught_up(self, deadline_s):
        written = self.primary.ask("select pg_current_wal_flush_lsn()")
        wait_until(lambda: self.primary.ask("select count(*) from pg_stat_replication where state = 'streaming' and"
                                            f" flush_lsn >= '{written}'"), deadline_s, "the standby's copy")

    def rebuild(self):
        """The standby, whatever became of it, begins again as a copy of the primary."""
        self.standby.kill()
        self.standby.copy_anew(self.primary)
        self.stream.target = self.primary.port
        self.standby.up()

    def promote(self):
        """The standby leads, the primary (which has to be gone, or frozen) does not any more."""
        with self.standby.connect() as connection:
            connection.execute("select pg_promote(true, 60)")
        wait_until(lambda: not self.standby.ask("select pg_is_in_recovery()"), DEADLINE_S, "the promotion")
        self.primary, self.standby = self.standby, self.primary
        self.on_promotion(self.primary)

    def take_stock(self, dbname, promoted_at):
        """
        After a promotion at that time: looks into the server that was the primary, unseen by all others, for what only that
        one knows. How many rows and how many receipts were lost.
        """
        old, new = self.standby, self.primary
        old.proxy.refuse(True)
        old.up()
        with old.connect(dbname) as connection:
            written = {row[0] for row in connection.execute(WRITTEN)}
            sent = {row[0] for row in connection.execute(SENT)}
        old.kill()
        old.proxy.refuse(False)
        with new.connect(dbname) as connection:
            known = {row[0] for row in connection.execute(KNOWN, (list(written),))}
            receipted = {row[0] for row in connection.execute(RECEIPTED, (list(sent), promoted_at))}
        lost, unsent = written - known, sent - receipted
        self.forgotten |= lost
        self.forgotten_sent |= unsent
        return len(lost), len(unsent)
