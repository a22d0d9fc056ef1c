"""Runs the denpyo binary: single commands, and relays whose log lines a test can wait for."""

import os
import signal
import subprocess
import sys
import threading
import time

from .process import freeze


def clean_environment(extra=None):
    """This process's environment without what would configure denpyo or libpq behind the test's back."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("DENPYO_", "PG"))}
    return inherited | {name: str(value) for name, value in (extra or {}).items()}


def run_command(binary, *args, env=None, timeout=60, stdin=None):
    """Runs `denpyo ARGS…` to its end: a CompletedProcess with text in stdout and stderr."""
    return subprocess.run([binary, *map(str, args)], env=clean_environment(env), timeout=timeout, input=stdin or "",
                          capture_output=True, text=True)


class Relay:
    """A running `denpyo run`; a context manager that kills what still runs."""

    def __init__(self, binary, *args, env=None):
        self.lines = []
        self._changed = threading.Condition()
        self.process = subprocess.Popen([binary, "run", *map(str, args)], env=clean_environment(env), text=True,
                                        errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._reader = None
            self._changed.notify_all()

    @property
    def pid(self):
        return self.process.pid

    @property
    def running(self):
        return self.process.poll() is None

    def log_text(self):
        with self._changed:
            return "\n".join(self.lines)

    def wait_log(self, text, deadline_s=30, after=0):
        """The first line at or after position `after` that holds text; AssertionError at the deadline or the log's end."""
        end = time.monotonic() + deadline_s
        with self._changed:
            while True:
                for line in self.lines[after:]:
                    if text in line:
                        return line
                after = max(after, len(self.lines))
                left = end - time.monotonic()
                if left <= 0 or self._reader is None:
                    why = f"within {deadline_s} s" if self._reader else f"before exit code {self.process.wait()}"
                    raise AssertionError(f"no log line with {text!r} {why}; the log:\n" + "\n".join(self.lines))
                self._changed.wait(left)

    def signal(self, number):
        """After SIGSTOP it stands still."""
        if number == signal.SIGSTOP:
            freeze([self.process.pid])
        else:
            self.process.send_signal(number)

    def kill(self):
        """SIGKILL, and waits until it is gone."""
        self.process.kill()
        self.process.wait()

    def wait(self, deadline_s=30):
        """The exit code."""
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the relay did not exit within {deadline_s} s; the log:\n{self.log_text()}") from None

    def stop(self, deadline_s=30):
        """SIGTERM; returns the exit code."""
        if self.running:
            self.signal(signal.SIGTERM)
        return self.wait(deadline_s)

    def close(self):
        """Ends the process if need be and leaves its log to pytest, which shows it when the test failed."""
        self.kill()
        print(f"--- log of relay {self.pid} (exit code {self.process.returncode})", self.log_text(), sep="\n",
              file=sys.stderr)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
