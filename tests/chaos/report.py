"""What a run found, as figures that can be summed over seeds, and as a table."""

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from statistics import median


@dataclass
class KindFigures:
    """
    One kind of fault. in_doubt: copies of messages that were in flight then. silences: where it came alone, the longest time
    without receipts, and the time from its end to the next ones, in s.
    """

    times: int = 0
    in_doubt: int = 0
    silences: list = field(default_factory=list)

    def __add__(self, other):
        return KindFigures(self.times + other.times, self.in_doubt + other.in_doubt, self.silences + other.silences)


@dataclass
class Result:
    """What one seed gave, or several together."""

    seeds: list
    kinds: dict = field(default_factory=dict)  # name -> KindFigures
    figures: dict = field(default_factory=dict)  # name -> number, in the order of their rows
    writers: Counter = field(default_factory=Counter)
    failed: list = field(default_factory=list)  # names of checks that found something
    checks: int = 0

    def __add__(self, other):
        kinds = {name: self.kinds.get(name, KindFigures()) + other.kinds.get(name, KindFigures())
                 for name in {**self.kinds, **other.kinds}}
        figures = {name: self.figures.get(name, 0) + other.figures.get(name, 0) for name in {**self.figures, **other.figures}}
        return Result(self.seeds + other.seeds, kinds, figures, self.writers + other.writers, self.failed + other.failed,
                      self.checks + other.checks)


def result_of(seed, history, troubles, judgement, writers):
    """The Result of one seed."""
    kinds = {}
    for event in history:
        doubles = 0 if event.kind in kinds else judgement.doubles[event.kind]
        silences = _silences(event, history, judgement.receipt_times)
        kinds[event.kind] = kinds.get(event.kind, KindFigures()) + KindFigures(1, doubles, silences)
    found = {name: len(offenders) for name, offenders in judgement.violations.items()}
    figures = {
        "faults": len(history), "messages": judgement.verdict.committed, "records": judgement.verdict.records,
        "rejected as too large": judgement.rejected, "gone with their topic": len(judgement.gone),
        "forgotten by a failover": len(judgement.world.postgres.forgotten),
        "sent again after a failover": len(judgement.resent), "terms": judgement.terms, **judgement.world.looked_up(),
        "doubled in flight at a fault": len(judgement.verdict.doubled) - len(judgement.resent) - found["doubled"],
        **found, "troubles": len(troubles),
    }
    failed = [f"{name} (seed {seed})" for name, number in {**found, "troubles": len(troubles)}.items() if number]
    return Result([seed], kinds, figures, writers.figures(), failed, len(found) + 1)


def _silences(event, history, receipt_times):
    """Nothing for a fault that came before the outbox had recovered from another one, or beside it, or was followed too soon."""
    if event.end is None or not event.is_alone:
        return []
    first, last = bisect_right(receipt_times, event.begin) - 1, bisect_right(receipt_times, event.end)
    if first < 0 or last == len(receipt_times) or any(event.begin < other.begin < receipt_times[last] for other in history):
        return []
    times = receipt_times[first:last + 1]
    return [(max(later - earlier for earlier, later in zip(times, times[1:])), receipt_times[last] - event.end)]


def print_result(result):
    """The table: faults by kind, what was found, what the writers did."""
    print(f"\n{'':50} {'median / longest time without receipts':>40}")
    print(f"{'fault':40} {'times':>5} {'in doubt':>8} {'from its beginning':>19} {'after its end':>16}")
    for name, figures in sorted(result.kinds.items()):
        columns = [_spread([silence[which] for silence in figures.silences]) for which in (0, 1)]
        print(f"{name:40} {figures.times:5} {figures.in_doubt:8} {columns[0]:>19} {columns[1]:>16}")
    print()
    for name, figure in result.figures.items():
        print(f"{name:34} {figure:9}")
    print(f"writers: {dict(result.writers)}", flush=True)


def _spread(seconds):
    return f"{median(seconds):.2f} / {max(seconds):.2f} s" if seconds else "-"
