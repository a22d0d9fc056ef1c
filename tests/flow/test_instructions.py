"""What a message costs the relay's own code, in instructions: pinned, for they do not depend on the machine's mood."""

import re
import shutil
import subprocess

import pytest
from lib.devserver import ROOT

# What tests/bench/hotpath.c walks through. The drivers' far ends, libpq's sending and librdkafka, are not counted.
SOURCES = ("batch envelope fault hold kafka_code ledger log loop outcome outcome_table overdue partition pgarray publish queue range retry "
           "route settle stretch topic utf8 window worker").split()

# Instructions a message at -O2, by major version of gcc (what the C library and libpq need for them is included).
# decode: a page's rows out of libpq's result; send: route, group, envelope; report: what the broker said; settle: the receipt's
# arrays; close: the batch leaves memory. If a change is worth more, say so where it is committed, and pin anew.
PINS = {
    12: {"decode": 1006, "send": 583, "send with headers": 2455, "report": 70, "settle": 194, "close": 103},
}
MAY_GROW = 1.10


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    """Instructions a message by step, in one run under callgrind."""
    folder = tmp_path_factory.mktemp("callgrind")
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "libpq", "rdkafka"], check=True, capture_output=True,
                           text=True).stdout.split()
    files = [ROOT / "tests" / "bench" / "hotpath.c", *(ROOT / "src" / f"{name}.c" for name in SOURCES)]
    subprocess.run(["gcc", "-std=c17", "-D_GNU_SOURCE", "-O2", "-g", f"-I{ROOT / 'include'}", *files, "-o",
                    folder / "hotpath", *flags, "-lpthread", "-lm"], check=True)
    done = subprocess.run(["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={folder}/out", folder / "hotpath"],
                          check=True, capture_output=True, text=True)
    rows, found = int(done.stdout), {}
    for dump in folder.glob("out*"):
        text = dump.read_text()
        step = re.search(r"^desc: Trigger: Client Request: (.+)$", text, re.MULTILINE)
        if step:
            instructions = int(re.search(r"^summary: (\d+)", text, re.MULTILINE)[1])
            found[step[1]] = min(found.get(step[1], instructions), instructions)
    return {step: round(instructions / rows) for step, instructions in found.items()}


@pytest.fixture(scope="module")
def pins():
    """Those of the installed compiler."""
    major = int(subprocess.run(["gcc", "-dumpversion"], check=True, capture_output=True, text=True).stdout.split(".")[0])
    if major not in PINS:
        pytest.skip(f"nothing is pinned for gcc {major}: run this file with it and add its counts to PINS")
    return PINS[major]


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind: deploy/devserver packages test")
@pytest.mark.measures
def test_a_message_costs_no_more_instructions_than_before(counts, pins):
    print("instructions a message:", counts)
    assert counts.keys() == pins.keys()
    dearer = {step: f"{counts[step]}, pinned {pin}" for step, pin in pins.items() if counts[step] > MAY_GROW * pin}
    assert not dearer, f"dearer than pinned by more than a tenth, in instructions a message: {dearer}"
