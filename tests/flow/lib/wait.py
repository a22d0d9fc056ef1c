"""Waiting for a condition, with a deadline and a reason to show when it never comes."""

import time


def wait_until(predicate, deadline_s=20, what="the condition"):
    """Calls predicate until it returns something true, and returns that; AssertionError at the deadline."""
    end = time.monotonic() + deadline_s
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() >= end:
            raise AssertionError(f"{what} did not come within {deadline_s} s (last answer: {answer!r})")
        time.sleep(0.02)
