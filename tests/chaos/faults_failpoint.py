"""The fault of a relay that ends by itself at a place in its code."""

import signal

import failpoints
from kinds import kind
from lib.wait import wait_until

WAIT_S = 8  # not every place is passed so soon, or at all
# Nothing that happens here leads there.
ELSEWHERE = ("identity_floor", "identity_swept", "lease_release")


@kind("relay dies at a failpoint", "relays")
def failpoint(world, rng):
    """Both relays are followed by such that die at the same place: whichever leads."""
    points = [point.name for point in failpoints.list_points()
              if point.is_in(world.mode) and not point.name.startswith(ELSEWHERE)]
    if not points:
        return f"left out: there is no {failpoints.binary()}"
    order = f"{rng.choice(points)}:{rng.choice([1, 1, 2, 5, 30])}"
    armed = [(slot, slot.ask(signal.SIGKILL, order)) for slot in world.slots]
    try:
        wait_until(lambda: any(not relay.running for _, relay in armed), WAIT_S, order)
        detail = f"{order}, died"
    except AssertionError:
        detail = f"{order}, not passed"
    for slot, relay in armed:
        if slot.relay is relay:
            slot.ask(signal.SIGKILL)
    return detail
