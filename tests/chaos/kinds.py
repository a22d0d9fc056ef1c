"""The kinds of fault by name: each breaks one thing, and has mended it when it returns what exactly it did."""

import time

KINDS = {}


class Kind:
    """
    A fault by name. Two whose parts of the world differ may come at once. may_double: an unknown outcome can come of
    it, and with it a second copy.
    """

    def __init__(self, name, part, run, may_double):
        self.name, self.part, self.run, self.may_double = name, part, run, may_double


def kind(name, part, may_double=True):
    def register(function):
        KINDS[name] = Kind(name, part, function, may_double)
        return function
    return register


def lasting(seconds):
    """The time a fault lasts is what it is about; nothing is waited for here."""
    time.sleep(seconds)
    return f"{seconds:.2f} s"
