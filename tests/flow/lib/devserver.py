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


_reserved = []  # sockets that keep the ports that free_port handed out from other test processes


def free_port():
    """
    A port that nobody listens on and no other test process was given, below the range that the kernel hands to
    outgoing connections: a client that keeps trying a stopped server's port could otherwise be given that very port and
    connect to itself. A name in the abstract socket space reserves it until this process ends, however it ends.
    """
    while True:
        port = random.randrange(15000, 32000)
        name = socket.socket(socket.AF_UNIX)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                name.bind(f"\0denpyo-test-port-{port}")
            except OSError:
                name.close()
                continue
        _reserved.append(name)
        return port


class Folders:
    """Folders that an unprivileged server user may enter; all removed by close()."""

    def __init__(self):
        self.root = Path(tempfile.mkdtemp(prefix="denpyo-test-", dir=os.environ.get("FLOW_TEST_FOLDER")))
        os.chmod(self.root, 0o755)
        self._count = 0

    def new(self, name):
        self._count += 1
        folder = self.root / f"{name}-{self._count}"
        folder.mkdir()
        return folder

    def close(self):
        shutil.rmtree(self.root, ignore_errors=True)
