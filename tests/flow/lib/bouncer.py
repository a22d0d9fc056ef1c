"""PgBouncer in transaction mode before a PostgreSQL server that can be exchanged behind its clients' backs."""

import os
import signal
import subprocess

import psycopg

from .devserver import free_port
from .wait import wait_until


def as_owner(path, *command):
    """PostgreSQL's and PgBouncer's programs refuse root: they run as the one whom the path belongs to."""
    owner = path.stat()
    if os.getuid() != 0:
        return [str(word) for word in command]
    return ["setpriv", f"--reuid={owner.st_uid}", f"--regid={owner.st_gid}", "--clear-groups", *map(str, command)]


def new_folder(folders, name, owner):
    """A folder that belongs to the owner of the path `owner`."""
    folder = folders.new(name)
    os.chown(folder, owner.stat().st_uid, owner.stat().st_gid)
    return folder


class Bouncer:
    """
    A pooler for one database, running until close(). It logs in as `user`, whoever its clients are. settings
    (name -> value) are those of PgBouncer.
    """

    def __init__(self, folder, database_name, server, user="postgres", settings=None):
        self.folder, self.user, self.port = folder, user, free_port()
        self._name, self._settings = database_name, settings or {}
        self._point(server)
        self.start()

    def _point(self, server):
        settings = {"listen_addr": "127.0.0.1", "listen_port": self.port, "unix_socket_dir": "", "auth_type": "any",
                    "pool_mode": "transaction", **self._settings}
        (self.folder / "pgbouncer.ini").write_text(
            f"[databases]\n{self._name} = host=127.0.0.1 port={server.port} user={self.user}\n[pgbouncer]\n"
            + "".join(f"{name} = {value}\n" for name, value in settings.items()))

    def start(self):
        """Starts it, and returns when it answers."""
        with open(self.folder / "pgbouncer.log", "ab") as log:
            command = as_owner(self.folder, "pgbouncer", self.folder / "pgbouncer.ini")
            self.process = subprocess.Popen(command, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._answers, 30, "PgBouncer's answer")

    def _answers(self):
        assert self.process.poll() is None, (self.folder / "pgbouncer.log").read_text(errors="replace")[-2000:]
        try:
            psycopg.connect(f"host=127.0.0.1 port={self.port} user={self.user} dbname=pgbouncer", autocommit=True).close()
        except psycopg.OperationalError as error:
            return "not allowed" in str(error)  # to look into it: it is there
        return True

    def conninfo(self, **more):
        words = {"host": "127.0.0.1", "port": self.port, "user": self.user, "dbname": self._name, **more}
        return psycopg.conninfo.make_conninfo(**words)

    def exchange(self, server):
        """Soon clients work on the other server, from one transaction to the next; they notice nothing."""
        self._point(server)
        self.process.send_signal(signal.SIGHUP)

    def kill(self):
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """SIGTERM: PgBouncer ends at once, whoever is connected."""
        self.process.terminate()
        self.process.wait()

    close = stop
