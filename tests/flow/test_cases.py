"""What people hit with other relays, where no other file tests it; and that the lists of tests in the documents are true."""

import re
import subprocess
import sys
import time
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition
from mock import PRODUCE, MockKafka
from outbox import Outbox

from lib.devserver import ROOT
from lib.wait import wait_until

NOT_ENOUGH_REPLICAS, INVALID_REQUEST = 19, 42
VOLUME = ["batch", "message", "settlement", "settlement_topic"]


@pytest.fixture
def mock():
    with closing(MockKafka()) as broker:
        yield broker


# --- cases ---


def test_case_02_no_slot_no_wal_level_and_no_right_to_replicate(own_postgres, new_database, initialise, mock, relay):
    server = own_postgres(settings={"wal_level": "minimal", "max_wal_senders": 0, "max_replication_slots": 0})
    database = initialise(new_database(server))
    database.execute("create role plain login noreplication in role outbox_relay")
    topic = mock.create_topic()
    with closing(Outbox(database)) as outbox:
        running = relay(server.conninfo(database.name, user="plain"), brokers=mock.bootstrap)
        outbox.generate(topic, 100)
        outbox.wait_states({"dispatched": 100})
        assert outbox.sql("select * from pg_replication_slots") == []
        assert running.stop() == 0


def test_case_09_only_the_acknowledgment_settles(outbox, mock, relay):
    """The client has the messages and tries for long: they are on their way, and nowhere called anything else."""
    topic = mock.create_topic()
    relay(outbox.database, brokers=mock.bootstrap)
    outbox.generate(topic, 10)
    outbox.wait_states({"dispatched": 10})
    mock.answer(PRODUCE, *[NOT_ENOUGH_REPLICAS] * 10000)
    outbox.generate(topic, 10, first=11)
    outbox.wait_states({"dispatched": 10, "requesting": 10})
    end = time.monotonic() + 2

    def is_over():
        assert outbox.states() == {"dispatched": 10, "requesting": 10}
        return time.monotonic() > end

    wait_until(is_over, 60, "the end of the watch")
    mock.answer_well(PRODUCE)
    outbox.wait_states({"dispatched": 20})


def test_case_14_a_poison_row_waits_longer_each_time_up_to_a_bound(outbox, mock, relay):
    """Twice as long after each attempt, less up to a quarter by chance; then the longest wait, for ever."""
    topic, initial_ms, max_ms, seen = mock.create_topic(), 100, 400, {}
    relay(outbox.database, "--retry-initial-ms", initial_ms, "--retry-max-ms", max_ms, brokers=mock.bootstrap)
    mock.answer(PRODUCE, *[INVALID_REQUEST] * 10000)
    poison = outbox.insert(topic, key="a", payload="x")

    def has_failed_often():
        for row in outbox.sql("select attempts, next_attempt_at - last_error_at as wait from outbox.parked where state = 'failed'"):
            seen[row.attempts] = row.wait.total_seconds() * 1000
        return max(seen, default=0) >= 7

    wait_until(has_failed_often, 60, "seven attempts")
    print(seen)
    for attempts, wait_ms in seen.items():
        full_ms = min(initial_ms * 2 ** (attempts - 1), max_ms)
        assert 0.75 * full_ms - 1 <= wait_ms <= full_ms + 1, (attempts, wait_ms)
    mock.answer_well(PRODUCE)
    outbox.wait_row(poison.id, "dispatched")


def test_case_15_nothing_removes_a_message_that_was_not_sent(outbox, mock, relay):
    """The relay's role may not delete or change messages at all, so that no bug of it can."""
    topic = mock.create_topic()
    with closing(outbox.database.connect()) as connection:
        rights = connection.execute("select has_table_privilege('outbox_relay', 'outbox.message', right_) from unnest(array["
                                    "'delete', 'truncate', 'update']) right_").fetchall()
        assert rights == [(False,)] * 3
    relay(outbox.database, brokers=mock.bootstrap)
    outbox.generate(topic, 100)
    outbox.wait_states({"dispatched": 100})
    assert outbox.sql("select count(*)::int from outbox.message") == [(100,)]


def test_case_17_the_hot_path_leaves_no_dead_row_while_an_old_transaction_is_open(outbox, mock, relay):
    topic = mock.create_topic(partitions=3)
    with closing(outbox.database.connect()) as old:
        old.execute("begin isolation level repeatable read")
        old.execute("select count(*) from outbox.message")
        relay(outbox.database, brokers=mock.bootstrap)
        for number in range(20):
            outbox.generate(topic, 100, first=100 * number + 1)
            outbox.wait_dispatched(100 * (number + 1), topic)

        def counted():
            rows = outbox.sql("select relname, n_tup_ins as added, n_tup_upd + n_tup_del + n_dead_tup as dead from pg_stat_user_tables"
                              " where schemaname = 'outbox' and relname = any (%s) order by 1", VOLUME)
            return rows if [row.relname for row in rows if row.added >= 20] == VOLUME else None

        rows = wait_until(counted, 60, "the server's own count")
        assert [row.dead for row in rows] == [0] * len(VOLUME), rows


def test_case_18_the_first_message_after_a_silence_takes_no_second_more_than_others(outbox, kafka, relay):
    topic = kafka.create_topic()
    running = relay(outbox.database)
    running.wait_log("leading")
    latency = "select extract(epoch from settled_at - created_at)::float from outbox.status where id = %s"

    def send():
        row = outbox.insert(topic, key="a", payload="x")
        outbox.wait_row(row.id, "dispatched")
        return outbox.sql(latency, row.id)[0][0]

    usual = sorted(send() for _ in range(20))[10]
    silent_until = time.monotonic() + 12  # also of the client's connections: the broker closes them

    def is_over():
        return time.monotonic() > silent_until

    wait_until(is_over, 60, "the end of the silence")
    first = send()
    print(f"usually {usual:.3f} s, after the silence {first:.3f} s")
    assert first < usual * 10 + 1


def test_case_26_the_record_time_is_that_of_the_sending(outbox, kafka, relay):
    """A backlog with the time of its insertion would be removed by retention at once."""
    topic = kafka.create_topic()
    outbox.generate(topic, 1)
    (created,), = outbox.sql("select extract(epoch from created_at) * 1000 from outbox.message")
    waited_until = time.monotonic() + 3
    wait_until(lambda: time.monotonic() > waited_until, 60, "an age")
    relay(outbox.database)
    outbox.wait_states({"dispatched": 1})
    with closing(Consumer(kafka.client | {"group.id": "times"})) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = wait_until(lambda: consumer.poll(0.1), 30, "the record")
    assert message.timestamp()[1] >= float(created) + 3000


# --- documents ---


@pytest.fixture(scope="module")
def tests():
    """The names of all tests: (file, name) of Python's, and of the C programs'."""
    done = subprocess.run([sys.executable, "-m", "pytest", "--collect-only", "-q", "--heavy", "tests/flow"], cwd=ROOT,
                          capture_output=True, text=True)
    names = {(f"tests/flow/{path}", name) for path, name in re.findall(r"^(\w+\.py)::(\w+)", done.stdout, re.MULTILINE)}
    assert len(names) > 200, done.stdout[-2000:] + done.stderr
    judge = "tests/chaos/test_judge.py"
    names |= {(judge, name) for name in re.findall(r"^def (test_\w+)", (ROOT / judge).read_text(), re.MULTILINE)}
    for path in (ROOT / "tests" / "unit").glob("test_*.c"):
        names |= {(f"tests/unit/{path.name}", name) for name in re.findall(r"^Test\(\w+,\s+(\w+)", path.read_text(), re.MULTILINE)}
    return names


def rows_after(text, heading):
    """The cells of the rows of the first table behind a heading."""
    lines = iter(text[text.index(f"\n## {heading}\n"):].splitlines())
    table = []
    for line in lines:
        if line.startswith("|"):
            table.append([cell.strip() for cell in line.strip("|").split("|")])
        elif table:
            break
    return table[2:]


def test_each_case_names_tests_that_exist(tests):
    rows = rows_after((ROOT / "tests" / "README.md").read_text(), "Cases")
    assert [int(number) for number, *_ in rows] == list(range(1, 31))
    for number, case, cell in rows:
        named = re.findall(r"`([\w/]+\.(?:py|c))::(\w+)`", cell)
        assert named, f"case {number} names no test"
        for path, name in named:
            assert (f"tests/{path}", name) in tests or (f"tests/flow/{path}", name) in tests, f"case {number}: no test {path}::{name}"
    marked = {(int(found[1]), name) for _, name in tests if (found := re.match(r"(?:test_)?case_(\d+)_", name))}
    told = {(int(number), name) for number, _, cell in rows for name in re.findall(r"::(\w+)`", cell)}
    assert marked <= told, f"not in the list: {sorted(marked - told)}"


def test_each_promise_names_commands_that_exist(tests):
    rows = rows_after((ROOT / "README.md").read_text(), "What it promises")
    assert [int(number) for number, *_ in rows] == list(range(1, 8))
    for number, *_, cell in rows:
        commands = re.findall(r"`([^`]+)`", cell)
        assert commands, f"promise {number} names no command"
        for command in commands:
            check_command(command, {f"{path}::{name}" for path, name in tests if path.startswith("tests/flow/")})


def check_command(command, names):
    program, *words = re.findall(r'"[^"]*"|\S+', command)
    assert (ROOT / program).exists(), command
    if program == "tests/run":
        assert words[:2] == ["flow", "-k"] and len(words) == 3 or words in (["unit"], ["flow"]), command
        for word in words[2:]:
            for term in word.strip('"').split(" or "):
                assert any(term in name for name in names), f"{command}: nothing is named {term}"
    else:
        usage = subprocess.run([ROOT / program, "--help"], capture_output=True, text=True, check=True).stdout
        for option in (word for word in words if word.startswith("--")):
            assert option in usage, f"{command}: no option {option}"
