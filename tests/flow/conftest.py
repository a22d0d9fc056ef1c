"""The fixtures of the flow tests: real servers, fresh databases, and the denpyo binary."""

import functools
import os
import shutil
import signal
import tempfile
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from outbox import Outbox

from lib.devserver import ROOT, Folders, devserver
from lib.kafka import Kafka
from lib.postgres import Postgres, fetch_postgres17
from lib.relay import Relay, run_command


def pytest_addoption(parser):
    parser.addoption("--heavy", action="store_true", help="run the tests marked heavy, too")
    parser.addoption("--sanitized", action="store_true", help="the binary is sanitized: skip what measures its memory")
    parser.addoption("--no-fsync", action="store_true", help="PostgreSQL without fsync: faster, less real")


def pytest_configure(config):
    """Being terminated must end the servers, too. Workers (pytest -n) keep their folders in that of the process that started them."""
    signal.signal(signal.SIGTERM, lambda *_: pytest.exit("terminated", returncode=143))
    if not hasattr(config, "workerinput"):
        config.denpyo_folder = Path(tempfile.mkdtemp(prefix="denpyo-test-"))
        config.denpyo_folder.chmod(0o755)
        os.environ["FLOW_TEST_FOLDER"] = str(config.denpyo_folder)


def pytest_unconfigure(config):
    """Ends the relays and servers of a worker that had no time to do so."""
    folder = getattr(config, "denpyo_folder", None)
    if folder is None:
        return
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended meanwhile, or is another user's
            is_ours = f"FLOW_TEST_FOLDER={folder}".encode() in environ.read_bytes().split(b"\0")
            if is_ours and "denpyo" in (environ.parent / "exe").readlink().name:
                os.kill(int(environ.parent.name), signal.SIGKILL)
    for file in folder.glob("*/*/kafka.pid"):
        devserver("kafka", "stop", file.parent, "--kill")
    for file in folder.glob("*/*/bindir"):
        devserver("postgres", "stop", file.parent, "immediate")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    deselect(config, items)
    for item in items:
        if shared := shared_in_module(item):
            item.add_marker(pytest.mark.xdist_group(shared))
    items.sort(key=turn)


def shared_in_module(item):
    """What tests of one module share and a second worker would have to make again: the group that they belong to."""
    made = {name: fixtures[-1] for name, fixtures in item._fixtureinfo.name2fixturedefs.items()}
    names = sorted(name for name, fixture in made.items() if fixture.scope == "module")
    if not names:
        return None
    values = getattr(item, "callspec", None)
    kinds = [str(values.params[name]) for name in names if values and name in values.params]
    return " ".join([item.module.__name__, *kinds])


def turn(item):
    """Which tests begin first: those that take long, so that no worker is left alone with one in the end."""
    if item.get_closest_marker("long") or item.get_closest_marker("xdist_group"):
        return 0
    if "own_kafka" in item.fixturenames:
        return 1
    return 2 if "own_postgres" in item.fixturenames else 3


def deselect(config, items):
    unwanted = set() if config.getoption("--heavy") else {"heavy"}
    if config.getoption("--sanitized"):
        unwanted.add("measures")
    out = [item for item in items if unwanted & {marker.name for marker in item.iter_markers()}]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]


# --- servers ---


@pytest.fixture(scope="session")
def folders():
    """Folders for servers: .new(name)."""
    with closing(Folders()) as made:
        yield made


@pytest.fixture(scope="session")
def start_postgres(request, folders):
    """Starts a server: start_postgres(bindir=None, settings=None); whoever starts one stops it."""

    def start(bindir=None, settings=None):
        fsync = {"fsync": "off"} if request.config.getoption("--no-fsync") else {}
        return Postgres(folders.new("postgres"), bindir, {"max_connections": 200, **fsync, **(settings or {})})

    return start


@pytest.fixture(scope="session")
def postgres(start_postgres):
    """The server that tests share; a test that stops it starts it again."""
    server = start_postgres()
    yield server
    server.stop("immediate")


@pytest.fixture(scope="session")
def postgres17(start_postgres, folders):
    """A shared server of another major version, whatever the machine has installed."""
    server = start_postgres(bindir=fetch_postgres17(folders.new("postgres17")))
    yield server
    server.stop("immediate")


@pytest.fixture
def own_postgres(start_postgres):
    """Private servers, for tests that break them: own_postgres(bindir=None, settings=None)."""
    with ExitStack() as stack:

        def start(bindir=None, settings=None):
            server = start_postgres(bindir, settings)
            stack.callback(server.stop, "immediate")
            return server

        yield start


@pytest.fixture(scope="session")
def kafka(folders):
    """The broker that tests share; a test that stops it starts it again."""
    broker = Kafka(folders.new("kafka"))
    yield broker
    broker.kill()


@pytest.fixture(scope="session")
def kafka_autocreate(folders):
    """A shared broker that creates topics for any client that asks."""
    broker = Kafka(folders.new("kafka"), {"auto.create.topics.enable": "true"})
    yield broker
    broker.kill()


@pytest.fixture
def own_kafka(folders):
    """Private brokers, for tests that break them: own_kafka(properties=None)."""
    with ExitStack() as stack:

        def start(properties=None):
            broker = Kafka(folders.new("kafka"), properties)
            stack.callback(broker.kill)
            return broker

        yield start


# --- databases ---


@pytest.fixture
def new_database():
    """Fresh databases on any server: new_database(server); dropped after the test."""
    with ExitStack() as stack:

        def create(server):
            fresh = server.create_database()
            stack.callback(fresh.drop)
            return fresh

        yield create


@pytest.fixture
def database(postgres, new_database):
    """An empty database of this test's own."""
    return new_database(postgres)


@pytest.fixture
def initialise(run_denpyo):
    """`denpyo init` on a database, which is returned: initialise(database, *flags)."""

    def init(target, *flags):
        done = run_denpyo("init", "--postgres", target, *flags)
        assert done.returncode == 0, done.stdout + done.stderr
        return target

    return init


@pytest.fixture
def schema_ready(database, initialise):
    """A database of this test's own, after `denpyo init`."""
    return initialise(database)


@pytest.fixture
def outbox(schema_ready):
    """The outbox of that database, for a test's rows and questions."""
    with closing(Outbox(schema_ready)) as opened:
        yield opened


# --- the binary ---


@pytest.fixture(scope="session")
def denpyo():
    """The path of the binary under test."""
    path = os.path.abspath(os.environ.get("DENPYO_BINARY", ROOT / "build" / "denpyo"))
    assert os.access(path, os.X_OK), f"no binary {path}: build it, or set DENPYO_BINARY"
    return path


@pytest.fixture(scope="session")
def run_denpyo(denpyo):
    """Runs a command to its end: run_denpyo("status", "--json", env=None, timeout=60, stdin=None)."""
    return functools.partial(run_command, denpyo)


@pytest.fixture
def relay(denpyo, request):
    """
    Starts relays: relay(database, *flags, brokers=None, env=None), by default on the shared broker. Each is a
    context manager, and is killed after the test in any case.
    """
    with ExitStack() as stack:

        def start(target, *flags, brokers=None, env=None):
            brokers = brokers or request.getfixturevalue("kafka").bootstrap
            return stack.enter_context(
                Relay(denpyo, "--postgres", target, "--brokers", brokers, *flags, env=env))

        yield start
