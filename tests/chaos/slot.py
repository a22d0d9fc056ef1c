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
        self._asked = None
        self._end = threading.Event()
        self.relay = start()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self):
        while True:
            code = self.relay.process.wait()
            self.exits.append((time.time(), code, self._asked))
            self.log += [f"--- {self.name}, process {self.relay.pid}, exit code {code}", *self.relay.lines]
            self._asked = None
            if self._end.wait(0.2):
                return
            self.relay = self._start()

    def ask(self, number):
        """Sends a signal that ends the process, and waits until its successor runs."""
        gone = self.relay
        self._asked = number
        gone.signal(number)
        wait_until(lambda: self.relay is not gone, 60, f"the end of {self.name} after signal {number}")

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
            explained = {None: EXIT_AT_START, 15: {0, -15} | EXIT_AT_START, 9: {-9}}[asked]
            if code not in explained:
                yield f"{self.name} exited with {code} at {moment:.3f} (signal sent: {asked})"
