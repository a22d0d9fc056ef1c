"""Calls deploy/devserver, and finds ports and folders for the servers it starts."""

import os
import random
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DEVSERVER = ROOT / "deploy" / "devserver"


def devserver(*args):
    """Runs deploy/devserver and returns what it printed; AssertionError with its message when it fails."""
    done = subprocess.run([DEVSERVER, *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def free_port():
    """
    A port that nobody listens on, below the range that the kernel hands to outgoing connections: a client that
    keeps trying a stopped server's port could otherwise be given that very port and connect to itself.
    """
    while True:
        port = random.randrange(15000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class Folders:
    """Folders that an unprivileged server user may enter; all removed by close()."""

    def __init__(self):
        self.root = Path(tempfile.mkdtemp(prefix="denpyo-test-"))
        os.chmod(self.root, 0o755)
        self._count = 0

    def new(self, name):
        self._count += 1
        folder = self.root / f"{name}-{self._count}"
        folder.mkdir()
        return folder

    def close(self):
        shutil.rmtree(self.root, ignore_errors=True)
