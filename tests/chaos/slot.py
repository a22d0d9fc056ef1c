"""A place where a relay always runs."""

import threading
import time
from contextlib import suppress

from lib.wait import wait_until

EXIT_AT_START = {3, 4, 6}  # a relay that starts while a server is away, or without its privileges, says so and leaves


class Slot:
    """A place where a relay always runs: one that exits is followed by a new one, until stop()."""

    def __init__(self, name, start):
        self.name, self._start = name, start
        self.exits = []  # (time, exit code, what was asked for: None, SIGTERM or SIGKILL)
        self.log = []  # of relays that are gone
        self._asked = self._order = None
        self._is_armed = False  # it may die by itself
        self._end = threading.Event()
        self.relay = start(None)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self):
        while True:
            code = self.relay.process.wait()
            self.exits.append((time.time(), code, 9 if self._is_armed and code == -9 else self._asked))
            self.log += [f"--- {self.name}, process {self.relay.pid}, exit code {code}", *self.relay.lines]
            self._asked = None
            if self._end.wait(0.2):
                return
            self._is_armed, order, self._order = self._order is not None, self._order, None
            self.relay = self._start(order)

    def ask(self, number, order=None):
        """
        Sends a signal that ends the process, and waits until its successor runs, which is returned. order: the
        failpoint where that one will die.
        """
        gone = self.relay
        self._asked, self._order = number, order
        gone.signal(number)
        wait_until(lambda: self.relay is not gone, 60, f"the end of {self.name} after signal {number}")
        return self.relay

    def stop(self):
        """SIGTERM at last: the exit code."""
        self._end.set()
        self._asked = 15
        with suppress(ProcessLookupError):
            self.relay.signal(15)
        try:
            return self.relay.wait(60)
        finally:
            self.relay.kill()
            self._thread.join(10)

    def troubles(self):
        """Exits that nothing explains."""
        for moment, code, asked in self.exits:
            explained = {None: EXIT_AT_START, 15: {0, -15} | EXIT_AT_START, 9: {-9} | EXIT_AT_START}[asked]
            if code not in explained:
                yield f"{self.name} exited with {code} at {moment:.3f} (signal sent: {asked})"
