"""Relays die at every place that the binary knows, and once more while another one recovers: all is found, sent, and receipted once."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from failpoints import DELIVERIES, Case, Runner, binary, draw_passing, list_points
from lib.relay import run_command

AT_ONCE = 4
POINTS = list_points()
# Wherever a relay dies here, it leaves an open batch.
LEAVES_OPEN = ("claim_committed", "produce_row", "produce_group", "report_taken", "settle_commit")
# Frozen here, a relay holds something that it could still write when it thaws.
FROZEN = ("claim_commit", "claim_committed", "produce_row", "produce_group", "settle_commit", "load_done", "txn_begun",
          "txn_commit", "txn_committed", "sweep_sent", "lease_renew_sent", "lookup_taken")


def cases_of(test):
    """The arguments of a test that takes `delivery` and `point`."""
    for delivery in DELIVERIES:
        for number, point in enumerate(point for point in POINTS if point.is_in(delivery)):
            if test == "test_a_second_death_in_recovery" and point.where != "recovery":
                continue
            if test == "test_a_frozen_relay_adds_nothing" and point.name not in FROZEN:
                continue
            yield pytest.param(delivery, point, id=f"{delivery}-{point.name}")


def pytest_generate_tests(metafunc):
    if "point" in metafunc.fixturenames:
        metafunc.parametrize(("delivery", "point"), list(cases_of(metafunc.function.__name__)))


@pytest.fixture(scope="module")
def runner(denpyo, postgres, kafka, run_denpyo):
    template = postgres.create_database()
    done = run_denpyo("init", "--postgres", template)
    assert done.returncode == 0, done.stderr
    yield Runner(denpyo, postgres, kafka, template)
    template.drop()


class Futures:
    """What every selected test of this file waits for; all of them start at once and run side by side."""

    def __init__(self, runner, pool, items):
        self._runner, self._pool = runner, pool
        self._counts = {(delivery, is_moved): pool.submit(runner.count, Case(delivery, (), is_moved))
                        for delivery in DELIVERIES for is_moved in (False, True)}
        self._runs = {}
        for item in items:
            self._runs[item.nodeid] = pool.submit(self._run, item.originalname, **item.callspec.params)

    def of(self, item):
        return self._runs[item.nodeid]

    def _times(self, delivery, point):
        """(is_moved, times): in which outbox a point is passed how often."""
        for is_moved in (False, True):
            times = self._counts[delivery, is_moved].result()[point]
            if times:
                return is_moved, times
        raise AssertionError(f"no relay passes {point} in mode {delivery}")

    def _run(self, test, delivery, point):
        is_moved, times = self._times(delivery, point.name)
        order = f"{point.name}:{draw_passing(times, f'{point.name} {delivery} {test}')}"
        if test == "test_a_death":
            return self._runner.die(Case(delivery, (order,), is_moved))
        if test == "test_a_frozen_relay_adds_nothing":
            return self._runner.freeze(Case(delivery, (order,), is_moved))
        first = LEAVES_OPEN[POINTS.index(point) % len(LEAVES_OPEN)]
        return self._runner.die(Case(delivery, (first, point.name)))


@pytest.fixture(scope="module")
def futures(request, runner):
    items = [item for item in request.session.items if item.module is request.module and "point" in item.fixturenames]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield Futures(runner, pool, items)
        pool.shutdown(cancel_futures=True)
    print("second copies:", dict(+runner.doubled))


def test_the_binary_for_tests_is_there_and_prints_its_table():
    assert POINTS, f"no binary {binary()}: build with -DDENPYO_TESTS=ON"
    assert len({point.name for point in POINTS}) == len(POINTS) > 40


def test_an_order_that_is_none_is_refused():
    for order, reason in (("claim", 'no failpoint "claim"'), ("claim_commit:0", "comes its passing, 1 or more"),
                          ("claim_commit:1:die", "the action is kill or stop")):
        ended = run_command(binary(), "version", env={"DENPYO_FAILPOINT": order})
        assert ended.returncode == 2 and reason in ended.stderr


def test_the_binary_that_ships_has_none(denpyo, run_denpyo):
    """Not a word of the table, nor the variable's name; and the variable is refused like any other that it does not know."""
    names = [b"DENPYO_FAILPOINT", b"failpoint_pass", *(point.sense.encode() for point in POINTS)]
    shipped, other = (open(path, "rb").read() for path in (denpyo, binary()))
    assert [name for name in names if name not in other] == []
    assert [name for name in names if name in shipped] == []
    assert "unknown option DENPYO_FAILPOINT" in run_denpyo("config", env={"DENPYO_FAILPOINT": "list"}).stderr


def test_a_death(request, futures, delivery, point):
    futures.of(request.node).result()


def test_a_second_death_in_recovery(request, futures, delivery, point):
    futures.of(request.node).result()


def test_a_frozen_relay_adds_nothing(request, futures, delivery, point):
    """Its successor has done its work when it thaws: it writes no receipt; in exactly-once mode no reader sees anything of it."""
    futures.of(request.node).result()
