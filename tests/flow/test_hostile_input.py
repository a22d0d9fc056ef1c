"""Whatever stands in a row, and whichever constraint it went past: it is delivered as it is, or rejected with a reason, alone."""

import random
import re
import subprocess
from contextlib import closing

import pytest
from lib.postgres import Database
from outbox import Outbox

MALFORMED = "MALFORMED"
LIMIT = 1048588  # kafka.message.max.bytes
ESCAPE = "\x1b[2J\x1b]0;title\x07\x9b31m"
FORGED = "orders\n2026-01-01T00:00:00.000Z error forged"
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")

# What the application cannot write and a superuser can, who drops the constraints: columns -> code and words of the rejection.
OUTLAWS = {
    "no topic name": ({"topic": ""}, MALFORMED, "no topics of such a name"),
    "a dot": ({"topic": "."}, MALFORMED, "no topics of such a name"),
    "two dots": ({"topic": ".."}, MALFORMED, "no topics of such a name"),
    "a topic of 250 characters": ({"topic": "t" * 250}, MALFORMED, "no topics of such a name"),
    "a topic of 100 kB": ({"topic": "t" * 100_000}, MALFORMED, "no topics of such a name"),
    "a topic with a space": ({"topic": "two words"}, MALFORMED, '"two words"'),
    "a topic with a line break": ({"topic": FORGED}, MALFORMED, '"orders 2026-01-01'),
    "a topic that steers a terminal": ({"topic": ESCAPE}, MALFORMED, '"?[2J?]0;title??31m"'),
    "a topic of emoji": ({"topic": "\U0001f600" * 80}, MALFORMED, "no topics of such a name"),
    "a null topic": ({"topic": None}, MALFORMED, "no topics of such a name"),
    "partition -1": ({"partition": -1}, MALFORMED, "partition is negative"),
    "the lowest partition": ({"partition": -2**31}, MALFORMED, "partition is negative"),
    "both keys": ({"key_bytes": b"k"}, MALFORMED, "both a key and key_bytes"),
    "both payloads": ({"payload_bytes": b"p"}, MALFORMED, "exactly one of payload"),
    "no payload and no tombstone": ({"payload": None}, MALFORMED, "exactly one of payload"),
    "a tombstone with a payload": ({"tombstone": True}, MALFORMED, "exactly one of payload"),
    "no message id": ({"message_id": None}, MALFORMED, "no message_id"),
    "no message id either": ({"message_id": None}, MALFORMED, "no message_id"),
    "a list of headers": ({"headers": "[1]"}, "HEADERS", "not a JSON object"),
    "a text for headers": ({"headers": '"text"'}, "HEADERS", "not a JSON object"),
    "null for headers": ({"headers": "null"}, "HEADERS", "not a JSON object"),
    "a number in a header": ({"headers": '{"a": 1}'}, "HEADERS", "not a JSON object"),
    "an object in a header": ({"headers": '{"a": {"b": "c"}}'}, "HEADERS", "not a JSON object"),
    "a header without a name": ({"headers": '{"": "x"}'}, "HEADERS", "empty name"),
    "a header with the reserved name": ({"headers": '{"id": "x"}'}, "HEADERS", "reserved"),
    "the highest partition": ({"partition": 2**31 - 1}, "UNKNOWN_PARTITION", "there is no partition 2147483647"),
}


def drop_constraints(outbox):
    for (name,) in outbox.sql("select conname from pg_constraint where conrelid = 'outbox.message'::regclass and contype = 'c'"):
        outbox.sql(f"alter table outbox.message drop constraint {name}")
    for column in ("topic", "message_id"):
        outbox.sql(f"alter table outbox.message alter {column} drop not null")


def insert_outlaws(outbox, topic):
    """Each between two good rows of one key: {name: id}, and the ids of the good ones."""
    outlaws, good = {}, [outbox.insert(topic, key="good", payload="p").id]
    for number, (name, (columns, *_)) in enumerate(OUTLAWS.items()):
        row = {"topic": topic, "key": f"k{number}", "payload": "p"} | columns
        outlaws[name] = outbox.insert(row.pop("topic"), **row).id
        good.append(outbox.insert(topic, key="good", payload="p").id)
    return outlaws, good


def wrong_rejections(outbox, outlaws):
    """Those that did not end as OUTLAWS says."""
    wrong = {}
    for name, number in outlaws.items():
        row, (_, code, words) = outbox.row(number), OUTLAWS[name]
        if row.state != "rejected" or row.error_code != code or words not in row.error or CONTROL.search(row.error):
            wrong[name] = (row.state, row.error_code, row.error)
    return wrong


def test_rows_that_went_past_the_constraints_are_rejected_alone(outbox, kafka, relay, run_denpyo):
    topic = kafka.create_topic(partitions=2)
    drop_constraints(outbox)
    outlaws, good = insert_outlaws(outbox, topic)
    running = relay(outbox.database)
    outbox.wait_resolved()
    assert wrong_rejections(outbox, outlaws) == {}
    assert {outbox.row(number).state for number in good} == {"dispatched"}
    assert len(kafka.read_all(topic)) == len(good)
    # A person tries them all again: the same end.
    outbox.sql("select outbox.retry(message_id) from outbox.parked where state = 'rejected'")
    outbox.wait_resolved()
    assert wrong_rejections(outbox, outlaws) == {} and len(kafka.read_all(topic)) == len(good)
    # Nothing of it forges a line or steers a terminal, in the log or in what the commands print.
    for line in running.log_text().split("\n"):
        assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z (debug|info|warn|error) ", line) and not CONTROL.search(line), line
    assert not re.search(r"^\S+ error forged", running.log_text(), re.MULTILINE)
    commands = [["status"], *(["show", outlaws[name]] for name in OUTLAWS if outbox.row(outlaws[name]))]
    for command in commands:
        done = run_denpyo(*command, "--postgres", outbox.database)
        assert done.stdout and not CONTROL.search(done.stdout + done.stderr), (command, done)
        assert not re.search(r"^2026-01-01", done.stdout, re.MULTILINE), done.stdout
    assert running.stop() == 0


def test_open_batches_of_such_rows_are_loaded_after_a_crash(outbox, own_kafka, relay):
    broker = own_kafka()
    topic = broker.create_topic(partitions=2)
    drop_constraints(outbox)
    running = relay(outbox.database, "--lease-ms", 1000, brokers=broker.bootstrap)
    outbox.wait_row(outbox.insert(topic, key="first", payload="p").id, "dispatched")
    broker.freeze()
    outlaws, good = insert_outlaws(outbox, topic)
    outbox.wait_row(good[-1], "requesting")
    running.kill()
    broker.thaw()
    relay(outbox.database, "--lease-ms", 1000, brokers=broker.bootstrap)
    outbox.wait_resolved()
    assert wrong_rejections(outbox, outlaws) == {}
    assert {outbox.row(number).state for number in good} == {"dispatched"}


def test_what_the_schema_refuses_never_gets_in(outbox):
    refused = {name for name, (columns, *_) in OUTLAWS.items()
               if refuses(outbox, {"topic": "t", "key": "k", "payload": "p"} | columns)}
    assert refused == OUTLAWS.keys() - {"the highest partition"}


def refuses(outbox, row):
    try:
        outbox.insert(row.pop("topic"), **row)
    except Exception as e:
        assert "violates" in str(e), e
        return True
    return False


def incompressible(size):
    return random.Random(size).randbytes(size // 2).hex()


def test_large_keys_and_headers_are_delivered_or_rejected_with_their_size(outbox, kafka, relay):
    topic = kafka.create_topic(config={"max.message.bytes": 2 * LIMIT})
    many = '{"' + '": "v", "'.join(f"h{n}" for n in range(10_000)) + '": null}'
    delivered = {
        "1 MB of headers": {"payload": "p", "headers": '{"h": "%s"}' % incompressible(1_000_000)},
        "10,000 headers": {"payload": "p", "headers": many},
        "a header name of 100 kB": {"payload": "p", "headers": '{"%s": "v"}' % ("n" * 100_000)},
        "a key of 1 MB": {"payload": "p", "key_override": "k" * 1_000_000},
        "a payload below the limit with its frame": {"payload": incompressible(LIMIT - 200)},
        "a payload of NUL bytes": {"payload_bytes": b"\0" * 100_000},
    }
    rejected = {
        "a payload at the limit, which its frame exceeds": ({"payload": incompressible(LIMIT - 2)}, f"payload {LIMIT - 2} bytes"),
        "a payload above the limit": ({"payload": "p" * LIMIT}, f"payload {LIMIT}"),
        "a key above the limit": ({"payload": "p", "key_override": "k" * 2_000_000}, "2000000 bytes"),
        "headers above the limit": ({"payload": "p", "headers": '{"h": "%s"}' % ("v" * 2_000_000)}, "headers have alone 2000009"),
        "headers that make it too large": ({"payload": "p" * 600_000, "headers": '{"h": "%s"}' % ("v" * 600_000)},
                                           "payload 600000, key 1, headers 600001"),
    }

    def insert(columns):
        columns = dict(columns)
        return outbox.insert(topic, key=columns.pop("key_override", "k"), **columns).id

    ids = {name: insert(columns) for name, columns in delivered.items()}
    ids |= {name: insert(columns) for name, (columns, _) in rejected.items()}
    last = outbox.insert(topic, key="k", payload="last")
    relay(outbox.database)
    outbox.wait_row(last.id, "dispatched")
    outbox.wait_resolved()
    assert {name: outbox.row(ids[name]).state for name in delivered} == dict.fromkeys(delivered, "dispatched")
    for name, (_, words) in rejected.items():
        row = outbox.row(ids[name])
        assert row.state == "rejected" and row.error_code == "MSG_SIZE_TOO_LARGE", (name, row)
        assert words in row.error and str(LIMIT) in row.error, (name, row.error)
    records = {record.message_id: record for record in kafka.read_all(topic)}
    assert len(records) == len(delivered) + 1
    sent = {name: records[str(outbox.row(ids[name]).message_id)] for name in delivered}
    assert len(sent["10,000 headers"].headers) == 10_001 and sent["10,000 headers"].headers[-1][1] in (None, b"v")
    assert dict(sent["1 MB of headers"].headers)["h"] == incompressible(1_000_000).encode()
    assert dict(sent["a header name of 100 kB"].headers)["n" * 100_000] == b"v"
    assert len(sent["a key of 1 MB"].key) == 1_000_000 and sent["a payload of NUL bytes"].value == b"\0" * 100_000


@pytest.mark.measures
@pytest.mark.parametrize("column, value", [("key", "repeat('k', 900000)"),
                                           ("headers", "jsonb_build_object('h', repeat('h', 900000))")])
def test_memory_stays_bounded_whatever_part_of_the_rows_is_large(outbox, kafka, relay, column, value):
    """A page is bounded in rows by what rows were like before; what is larger than its share comes in smaller pages."""
    topic = kafka.create_topic()
    outbox.sql(f"insert into outbox.message (topic, payload, {column}) select %s, n, {value} from generate_series(1, 400) n",
               topic)
    running = relay(outbox.database, "--inflight-bytes", 16 * 2**20)
    outbox.wait_dispatched(400, topic)
    with open(f"/proc/{running.pid}/status") as status:
        (peak,) = [int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM:")]
    assert peak < 200, f"{peak} MB for 360 MB of rows"


@pytest.fixture
def ascii_outbox(postgres, initialise):
    """An outbox in a database without an encoding, which takes any bytes."""
    name = "any_bytes"
    with postgres.connect() as connection:
        connection.execute(f"create database {name} encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C' template template0")
    database = Database(postgres, name)
    try:
        with closing(Outbox(initialise(database))) as opened:
            opened.sql("set client_encoding to 'UTF8'")  # else the driver gives bytes for texts
            yield opened
    finally:
        database.drop()


def test_bytes_that_are_no_text_are_delivered_as_they_are(ascii_outbox, kafka, relay, run_denpyo):
    """As UTF-8 the server would refuse to send a page with such a row, and all behind it would wait for ever."""
    outbox, topic = ascii_outbox, kafka.create_topic()
    drop_constraints(outbox)
    in_headers = kafka.create_topic()
    outbox.sql("insert into outbox.message (topic, key, payload) values (%s, 'k' || chr(255), 'p' || chr(254) || chr(192))", topic)
    outbox.sql("insert into outbox.message (topic, key, payload, headers) values"
               " (%s, 'k', 'p', jsonb_build_object('n' || chr(255), 'v' || chr(128)))", in_headers)
    outbox.sql("insert into outbox.message (topic, key, payload) values ('bad' || chr(255), 'k' || chr(255), 'p')")
    outbox.sql("insert into outbox.message (topic, key, payload) values (%s, 'k', 'last')", topic)
    running = relay(outbox.database)
    outbox.wait_resolved()
    assert [(record.key, record.value) for record in kafka.read_all(topic)] == [(b"k\xff", b"p\xfe\xc0"), (b"k", b"last")]
    raw = subprocess.run(["kcat", "-C", "-q", "-e", "-b", kafka.bootstrap, "-t", in_headers, "-f", "%h\n"], check=True,
                         capture_output=True, timeout=60).stdout
    assert b"n\xff=v\x80" in raw
    (row,) = outbox.sql("select id, error_code, error from outbox.parked")
    assert row.error_code == MALFORMED and '"bad?"' in row.error
    for command in (["status"], ["status", "--json"], ["show", row.id], ["show", 1], ["check", "--brokers", kafka.bootstrap]):
        done = run_denpyo(*command, "--postgres", outbox.database)
        assert done.returncode in (0, 1) and done.stdout and "invalid byte" not in done.stdout + done.stderr, done
    assert running.stop() == 0
    relay(outbox.database)
    outbox.sql("insert into outbox.message (topic, key, payload) values (%s, 'k', 'after a restart')", topic)
    outbox.wait_dispatched(3, topic)
