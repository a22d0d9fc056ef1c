"""The judge of the chaos suite finds what it is there to find: each lie told to a real outbox is named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "flow"), str(ROOT / "tests" / "chaos")]

from judge import Judgement  # noqa: E402
from lib.wait import wait_until  # noqa: E402
from world import World  # noqa: E402

INSERT = "insert into outbox.message (topic, key, payload) values (%s, %s, %s) returning id, message_id::text"
ROWS = 8


@pytest.fixture(scope="module")
def settled():
    """A world at rest: rows 1 to 8 of one key are dispatched, and no relay runs any more."""
    binary = os.path.abspath(os.environ.get("DENPYO_BINARY", ROOT / "build" / "denpyo"))
    with World(binary, "at_least_once", 1, "judge") as world:
        with world.database.connect() as connection:
            for number in range(ROWS):
                connection.execute(INSERT, ("orders", "locked-1", f"row {number}"))
        query = "select count(*) from outbox.receipt"
        wait_until(lambda: world.ask(query) == ROWS, 60, "the receipts")
        assert [slot.stop() for slot in world.slots] == [0, 0]
        yield world


def violations(world):
    return {name: found for name, found in Judgement(world, []).violations.items() if found}


def test_the_truth_passes_and_every_lie_is_named(settled):
    """One lie after the other, each on a row of its own; those before stay."""
    assert violations(settled) == {}
    database, kafka = settled.database, settled.kafka
    row = dict(database.rows("select id, message_id::text from outbox.message"))
    place = {"key": b"locked-1", "partition": database.value("select min(partition) from outbox.receipt")}
    kafka.produce("orders", b"row 1", headers=[("id", row[2])], **place)
    kafka.produce("orders", b"?", headers=[("id", "00000000-0000-7000-8000-000000000000")], **place)
    number, message_id = database.rows(INSERT, ("orders", "locked-1", "never sent"))[0]
    late = database.rows(INSERT, ("orders", "locked-1", "sent too late"))[0]
    later = database.rows(INSERT, ("orders", "locked-1", "sent too early"))[0]
    for text, of in (("sent too early", later), ("sent too late", late)):
        kafka.produce("orders", text.encode(), headers=[("id", of[1])], **place)
    database.execute("update outbox.settlement set offsets[1] = 4711 where 3 = any (ids)")
    database.execute("insert into outbox.parked (id, relay, message_id, topic, state, error_code)"
                     " select id, 'default', message_id, topic, 'rejected', 'MSG_SIZE_TOO_LARGE' from outbox.message where id = 4")
    found = violations(settled)
    assert found["invented"] == ["00000000-0000-7000-8000-000000000000"]
    assert found["doubled"] == [2]
    assert found["lost"] == [number]
    assert [offender[-2:] for offender in found["reordered"]] == [(later[0], late[0])]
    assert len(found["false receipts"]) == 1
    assert found["without receipt"] == [number, late[0], later[0]]
    assert found["wrongly rejected"] == [4]
    assert found["false states"]
    assert "altered" not in found and "misplaced" not in found


def test_a_life_is_told(settled):
    lines = "\n".join(Judgement(settled, []).lives())
    for part in ("row id=", "status id=", "batch id=", "receipt message_id=", "parked id=", "copies ['orders["):
        assert part in lines


def test_an_unknown_kind_is_refused():
    done = subprocess.run([ROOT / "tests" / "chaos" / "run", "--kinds", "earthquake"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "no kind of fault is named like earthquake" in done.stderr
