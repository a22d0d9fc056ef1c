"""deploy/quickstart tells its whole story, twice if asked, and leaves nothing behind; deploy/devserver says no clearly."""

import os
import re
import socket
import subprocess

import pytest

from lib.devserver import DEVSERVER, ROOT, free_port
from lib.relay import clean_environment


@pytest.fixture
def quickstart(denpyo, folders):
    """Runs deploy/quickstart with the binary under test, in a folder of its own; stops it after the test in any case."""
    folder = folders.new("quickstart")
    environment = clean_environment({"DENPYO_BUILD": os.path.dirname(denpyo), "DENPYO_QUICKSTART_DIR": folder})

    def run(*args):
        command = [ROOT / "deploy" / "quickstart", *map(str, args)]
        return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)

    run.folder = folder
    yield run
    run("--stop")


def assert_told(done):
    """Every committed message is in the topic, some of them were in flight at the crash, and Cleo's is not there."""
    assert done.returncode == 0, done.stdout + done.stderr
    committed, distinct = re.search(r"(\d+) messages were committed.*\n +(\d+) of them", done.stdout).groups()
    assert committed == distinct and int(committed) > 60000
    assert re.search(r"\brequesting +\| +[1-9]", done.stdout)
    assert " 0 messages of Cleo" in done.stdout


def test_the_story_on_servers_that_are_there(quickstart, database, kafka):
    assert_told(quickstart("--postgres", database, "--brokers", kafka.bootstrap))
    assert quickstart("--stop").returncode == 0
    assert not quickstart.folder.exists()
    assert database.rows("select nspname from pg_namespace where nspname in ('denpyo_demo', 'outbox')") == [("outbox",)]
    kafka.delete_topic("demo-orders")


@pytest.mark.heavy
def test_the_story_on_private_servers_twice_and_nothing_remains(quickstart):
    ports = [free_port() for _ in range(3)]
    options = ["--postgres-port", ports[0], "--kafka-port", ports[1], "--controller-port", ports[2]]
    assert_told(quickstart(*options))
    assert_told(quickstart(*options))
    stopped = quickstart("--stop")
    assert stopped.returncode == 0, stopped.stderr
    assert not quickstart.folder.exists()
    for port in ports:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_taken_port_is_named_with_the_option_to_change_it(quickstart, kafka):
    done = quickstart("--kafka-port", kafka.port, "--postgres-port", free_port())
    assert done.returncode == 1
    assert done.stderr == f"quickstart: port {kafka.port} is taken; choose another with --kafka-port PORT\n"


def test_stopping_what_never_ran_is_fine(quickstart):
    quickstart.folder.rmdir()
    done = quickstart("--stop")
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing to stop" in done.stdout


REFUSALS = {
    "an unknown command": (["mysql", "start"], 2, "unknown command: mysql start"),
    "an unknown package group": (["packages", "all"], 2, "no package group named all"),
    "no port": (["postgres", "start", "/nowhere"], 2, "postgres start needs DIR and PORT"),
    "a port that is none": (["kafka", "start", "{folder}", "99999"], 2, "not a port: 99999"),
    "a setting without value": (["postgres", "start", "{folder}", "{free}", "-c", "fsync"], 2, "-c needs a value"),
    "a taken port for PostgreSQL": (["postgres", "start", "{folder}", "{taken}"], 1, "port {taken} is taken"),
    "a taken port for Kafka": (["kafka", "start", "{folder}", "{taken}"], 1, "port {taken} is taken"),
    "a server that is not installed": (["postgres", "start", "{folder}", "{free}", "--bindir", "/nowhere"], 1,
                                       "no PostgreSQL server in /nowhere"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_devserver_refuses(refusal, postgres, folders):
    args, code, reason = REFUSALS[refusal]
    values = {"folder": folders.new("refused"), "free": free_port(), "taken": postgres.port}
    done = subprocess.run([DEVSERVER, *(word.format(**values) for word in args)], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(f"devserver: {reason.format(**values)}"), done.stderr
