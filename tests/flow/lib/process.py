"""Making processes stand still."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from .wait import wait_until


def freeze(pids):
    """SIGSTOP, and waits until nothing of them moves: until one of a process's threads has taken the signal, the others go on. Some may be gone."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(map(_stands_still, pids)), 30, "processes that stand still")


def _stands_still(pid):
    return all(_state(thread) in "TtZX" for thread in Path(f"/proc/{pid}/task").glob("*/stat"))


def _state(thread):
    """A letter, as in proc(5); X when it is gone."""
    try:
        return thread.read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
