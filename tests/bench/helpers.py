"""Builds the benchmark's C helpers and runs the one that compares a topic with the outbox."""
import json
import os
import pathlib
import shlex
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCES = {
    "verify": ["verify.c", "client.c", "../../src/partition.c", "../../src/envelope.c", "../../src/fault.c"],
    "latency": ["latency.c", "client.c"],
}


class WrongTopic(Exception):
    """The topic does not hold what the outbox holds: no figure counts."""


def build_helpers(folder):
    """Compiles the helpers into `folder`; returns their paths by name."""
    packages = subprocess.run(["pkg-config", "--cflags", "--libs", "libpq", "rdkafka"], check=True,
                              capture_output=True, text=True).stdout
    compiler = [os.environ.get("CC", "cc"), "-std=c17", "-D_GNU_SOURCE", "-O2", f"-I{ROOT / 'include'}"]
    for name, sources in SOURCES.items():
        subprocess.run([*compiler, *(HERE / s for s in sources), "-o", folder / name, *shlex.split(packages),
                        "-lpthread"], check=True)
    return {name: folder / name for name in SOURCES}


def build_relay(folder):
    """A Release build of the relay as it stands in the tree; returns the binary's path."""
    subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-DCMAKE_BUILD_TYPE=Release"], check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", folder, "-j2", "--target", "denpyo"], check=True, stdout=subprocess.DEVNULL)
    return folder / "denpyo"


def compare(helpers, conninfo, brokers, topic, topics, rows, ids):
    """How a topic (or TOPIC-0 … when `topics` is not 0) differs from the table: counts by kind of difference."""
    command = [helpers["verify"], conninfo, brokers, topic, str(topics), str(rows), "ids" if ids else "no-ids"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1):
        raise WrongTopic(f"topic {topic} could not be compared with the outbox")
    return json.loads(done.stdout) | {"is_good": done.returncode == 0}


def verify(helpers, conninfo, brokers, topic, topics, rows, ids):
    """Compares topic and table; WrongTopic when a record is missing, doubled, altered or out of order per key."""
    answer = compare(helpers, conninfo, brokers, topic, topics, rows, ids)
    if not answer["is_good"] or answer["rows"] != rows or answer["records"] != rows:
        raise WrongTopic(f"topic {topic} differs from the outbox's {rows} rows: {answer}")
    return answer
