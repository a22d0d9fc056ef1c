"""What the application writes: every driver's bytes arrive as they were given, and what can never be published is refused."""

import json
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg import pq
from psycopg.types.json import Json, Jsonb

from lib.wait import wait_until

# Backslashes, quotes, what looks like an escape or a hex string, spacing that no JSON printer would keep, and text.
PAYLOAD = '{"path": "C:\\\\x",  "x":"\\\\x41\\u0041", "q":"\'\\"$$", "text":"注文 ü 🧾", "n": 1.0e+2}'
JDBC = "org.postgresql:postgresql:42.7.4:jar"


@pytest.fixture
def outbox(schema_ready):
    with schema_ready.connect() as connection:
        yield connection


def stored(connection):
    return connection.execute("select message_id, coalesce(convert_to(payload, 'UTF8'), payload_bytes) from outbox.message"
                              " order by id").fetchall()


# --- as drivers send it ---


def test_psycopg_parameters_arrive_byte_for_byte(outbox):
    insert = "insert into outbox.message (topic, {}) values ('orders', %s) returning message_id"
    binary = insert.replace("%s", "%b")
    sent = [outbox.execute(query.format(column), (value,)).fetchone()[0] for query, column, value in (
        (insert, "payload", PAYLOAD),
        (binary, "payload", PAYLOAD),
        (insert, "payload", Json(json.loads(PAYLOAD), dumps=lambda _: PAYLOAD)),
        (insert, "payload_bytes", PAYLOAD.encode()),
        (binary, "payload_bytes", PAYLOAD.encode()))]
    assert stored(outbox) == [(message_id, PAYLOAD.encode()) for message_id in sent]


def test_node_postgres_parameters_arrive_byte_for_byte(outbox):
    """
    node-postgres parses without parameter types and binds every value as text (objects through JSON.stringify),
    but a Buffer as binary; psycopg's low-level call puts the same messages on the wire.
    """
    def query(sql, *values):
        formats = [pq.Format.BINARY if isinstance(value, bytes) else pq.Format.TEXT for value in values]
        wire = [value if isinstance(value, bytes) else value.encode() for value in values]
        result = outbox.pgconn.exec_params(sql.encode(), wire, None, formats)
        assert result.status == pq.ExecStatus.TUPLES_OK, result.error_message
        return uuid.UUID(result.get_value(0, 0).decode())

    sent = [
        query("insert into outbox.message (topic, key, payload, headers) values ($1, $2, $3, $4) returning message_id",
              "orders", "k\\1", PAYLOAD, '{"trace":"a\\\\b"}'),
        query("insert into outbox.message (topic, payload_bytes) values ($1, $2) returning message_id",
              "orders", PAYLOAD.encode()),
        query("select outbox.publish($1, $2, $3)", "orders", "k", PAYLOAD),
    ]
    assert stored(outbox) == [(message_id, PAYLOAD.encode()) for message_id in sent]
    assert outbox.execute("select key, headers->>'trace' from outbox.message limit 1").fetchone() == ("k\\1", "a\\b")


@pytest.fixture(scope="session")
def jdbc_driver(folders):
    folder = folders.new("jdbc")
    done = subprocess.run(["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={JDBC}", f"-DoutputDirectory={folder}"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (jar,) = folder.glob("*.jar")
    return jar


def test_jdbc_parameters_arrive_byte_for_byte(schema_ready, outbox, jdbc_driver):
    url = f"jdbc:postgresql://127.0.0.1:{schema_ready.server.port}/{schema_ready.name}?user=postgres"
    source = Path(__file__).with_name("JdbcInsert.java")
    done = subprocess.run(["java", "-cp", jdbc_driver, source, url], input=PAYLOAD.encode(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    sent = [uuid.UUID(line) for line in done.stdout.decode().split()]
    assert len(sent) == 3 and sent[0] == uuid.UUID("00000000-0000-4000-8000-00000000000a")
    assert stored(outbox) == [(message_id, PAYLOAD.encode()) for message_id in sent]
    first = outbox.execute("select key, partition, headers->>'trace', available_at = '2026-01-02T03:04:05Z'"
                           " from outbox.message order by id limit 1").fetchone()
    assert first == ("k\\1", 3, "a\\b", True)


# --- what is refused ---

GOOD = {"topic": "t", "payload": "p"}
REFUSED = [
    ("message_topic_is_a_kafka_name", {"topic": topic})
    for topic in ("", ".", "..", "a b", "a/b", "größe", "a\n", "x" * 250, "a:b", "a,b")
] + [
    ("message_has_one_key_at_most", {"key": "k", "key_bytes": b"k"}),
    ("message_has_one_of_payload_payload_bytes_tombstone", {"payload": None}),
    ("message_has_one_of_payload_payload_bytes_tombstone", {"payload_bytes": b"p"}),
    ("message_has_one_of_payload_payload_bytes_tombstone", {"tombstone": True}),
    ("message_has_one_of_payload_payload_bytes_tombstone", {"payload": None, "payload_bytes": b"p", "tombstone": True}),
    ("message_partition_is_not_negative", {"partition": -1}),
] + [
    ("message_headers_are_an_object_of_strings_or_nulls", {"headers": Jsonb(headers)})
    for headers in ([], ["a"], "a", 1, None, {"a": 1}, {"a": True}, {"a": ["b"]}, {"a": {"b": "c"}}, {"a": "b", "c": []})
] + [
    ("message_headers_have_no_empty_name_and_no_id", {"headers": Jsonb(headers)}) for headers in ({"": "a"}, {"id": "a"})
]
ACCEPTED = [
    {"topic": "x" * 249}, {"topic": "A.b_c-9"}, {"topic": "..."}, {"key": ""}, {"key_bytes": b""}, {"payload": ""},
    {"payload": None, "payload_bytes": b""}, {"payload": None, "tombstone": True}, {"partition": 0}, {"headers": Jsonb({})},
    {"headers": Jsonb({"a": "b", "c": None, "ID": "d"})}, {"headers": None}, {"dedup_key": ""},
]


def insert(connection, columns):
    columns = GOOD | columns
    names, marks = ", ".join(columns), ", ".join(["%s"] * len(columns))
    connection.execute(f"insert into outbox.message ({names}) values ({marks})", list(columns.values()))


@pytest.fixture(scope="module")
def shared(postgres, run_denpyo):
    """One initialised database for tests of single statements."""
    database = postgres.create_database()
    done = run_denpyo("init", "--postgres", database)
    assert done.returncode == 0, done.stderr
    with database.connect() as connection:
        yield connection
    database.drop()


@pytest.mark.parametrize("constraint, columns", REFUSED)
def test_what_can_never_be_published_is_refused(shared, constraint, columns):
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        insert(shared, columns)
    assert refused.value.diag.constraint_name == constraint


@pytest.mark.parametrize("columns", ACCEPTED)
def test_what_can_be_published_is_accepted(shared, columns):
    insert(shared, columns)


@pytest.mark.parametrize("columns", [{"id": 1}, {"topic": None}, {"tombstone": None, "payload_bytes": b""}])
def test_columns_with_a_meaning_for_the_relay_cannot_be_left_wrong(shared, columns):
    with pytest.raises((psycopg.errors.NotNullViolation, psycopg.errors.GeneratedAlways, psycopg.errors.CheckViolation)):
        insert(shared, columns)


# --- ids ---


def test_the_default_message_id_is_unique_and_time_ordered(shared):
    def some():
        rows = shared.execute("insert into outbox.message (topic, payload) select 't', 'p' from generate_series(1, 100)"
                              " returning message_id, created_at").fetchall()
        return [message_id for message_id, _ in rows], rows[0][1]

    (first, begun), (second, _) = some(), wait_until(lambda: later(shared) and some())
    assert len({*first, *second}) == 200
    assert max(first) < min(second)
    assert {(message_id.version, message_id.variant) for message_id in first} == {(7, uuid.RFC_4122)}
    assert abs((first[0].int >> 80) / 1000 - begun.timestamp()) < 1


def later(connection):
    """True once the clock has passed the newest row by more than a version 7 id resolves."""
    return connection.execute("select clock_timestamp() > max(created_at) + interval '2 ms' from outbox.message").fetchone()[0]


def test_a_message_id_may_be_given_once(shared):
    given = uuid.uuid4()
    insert(shared, {"message_id": given})
    with pytest.raises(psycopg.errors.UniqueViolation):
        insert(shared, {"message_id": given})


def test_another_major_has_the_same_table(postgres17, new_database, initialise):
    with initialise(new_database(postgres17)).connect() as connection:
        insert(connection, {"headers": Jsonb({"a": None})})
        for constraint, columns in REFUSED:
            with pytest.raises(psycopg.errors.CheckViolation) as refused:
                insert(connection, columns)
            assert refused.value.diag.constraint_name == constraint
        assert connection.execute("select message_id from outbox.message").fetchone()[0].version == 7
        assert connection.execute("select outbox.publish('t', 'k', 'p') is not null").fetchone()[0]


def test_a_dedup_key_counts_once_per_topic(shared):
    insert(shared, {"dedup_key": "d", "topic": "one"})
    insert(shared, {"dedup_key": "d", "topic": "two"})
    with pytest.raises(psycopg.errors.UniqueViolation):
        insert(shared, {"dedup_key": "d", "topic": "one"})


# --- publish ---


@pytest.mark.parametrize("payload, payload_stored", [
    ("%s", (PAYLOAD, None)), ("%s::text", (PAYLOAD, None)), ("%s::json", (PAYLOAD, None)),
    ("%s::jsonb", None), ("convert_to(%s, 'UTF8')", (None, PAYLOAD.encode())),
])
def test_publish_takes_text_json_jsonb_and_bytes(shared, payload, payload_stored):
    message_id = shared.execute(
        f"select outbox.publish('orders', key => 'k', payload => {payload}, headers => '{{\"a\": \"b\"}}',"
        " partition => 2, available_at => '2030-01-01Z')", (PAYLOAD,)).fetchone()[0]
    payload_stored = payload_stored or (shared.execute("select %s::jsonb::text", (PAYLOAD,)).fetchone()[0], None)
    row = shared.execute("select topic, key, headers, partition, available_at = '2030-01-01Z', payload, payload_bytes"
                         " from outbox.message where message_id = %s", (message_id,)).fetchone()
    assert row == ("orders", "k", {"a": "b"}, 2, True, *payload_stored)


def test_publish_makes_a_tombstone_only_when_told(shared):
    with pytest.raises(psycopg.errors.CheckViolation):
        shared.execute("select outbox.publish('t', 'k', null)")
    message_id = shared.execute("select outbox.publish('t', 'k', null, tombstone => true)").fetchone()[0]
    assert shared.execute("select tombstone from outbox.message where message_id = %s", (message_id,)).fetchone() == (True,)


@pytest.mark.parametrize("arguments, expected", [
    ("payload => 'p'", (None, None, "p", None, False)),
    ("payload => '{}'::json", (None, None, "{}", None, False)),
    ("payload => '{}'::jsonb", (None, None, "{}", None, False)),
    ("payload => 'p'::bytea", (None, None, None, b"p", False)),
    ("payload => '{}'::jsonb, key_bytes => 'k'", (None, b"k", "{}", None, False)),
    ("payload_bytes => 'p'", (None, None, None, b"p", False)),
    ("key => 'k', tombstone => true", ("k", None, None, None, True)),
    ("key_bytes => 'k', tombstone => true", (None, b"k", None, None, True)),
])
def test_publish_by_name_needs_no_key_and_a_tombstone_no_payload(shared, arguments, expected):
    message_id = shared.execute(f"select outbox.publish(topic => 't', {arguments})").fetchone()[0]
    assert shared.execute("select key, key_bytes, payload, payload_bytes, tombstone from outbox.message"
                          " where message_id = %s", (message_id,)).fetchone() == expected


@pytest.mark.parametrize("arguments", ["'t'", "'t', 'k'", "topic => 't', key => 'k'", "topic => 't', key_bytes => 'k'"])
def test_publish_without_a_payload_is_ambiguous_and_refused(shared, arguments):
    with pytest.raises(psycopg.errors.AmbiguousFunction):
        shared.execute(f"select outbox.publish({arguments})")


def test_publish_of_a_known_dedup_key_returns_the_first_messages_id(shared):
    given = uuid.uuid4()
    first = shared.execute("select outbox.publish('t', 'k', 'one', dedup_key => 'x', message_id => %s)", (given,)).fetchone()
    second = shared.execute("select outbox.publish('t', 'k', '2'::jsonb, dedup_key => 'x')").fetchone()
    other = shared.execute("select outbox.publish('t2', 'k', 'two', dedup_key => 'x')").fetchone()
    assert first == second == (given,) != other
    assert shared.execute("select count(*) from outbox.message where dedup_key = 'x'").fetchone() == (2,)


@pytest.mark.parametrize("first_commits", [True, False])
def test_publish_waits_for_a_twin_that_is_not_yet_committed(schema_ready, first_commits):
    publish = "select outbox.publish('t', 'k', 'p', dedup_key => 'x')"
    with schema_ready.connect() as first, schema_ready.connect() as second, ThreadPoolExecutor(1) as pool:
        first.execute("begin")
        twin = first.execute(publish).fetchone()
        waiting = pool.submit(lambda: second.execute(publish).fetchone())
        blocked = f"select cardinality(pg_blocking_pids({second.info.backend_pid}))"
        wait_until(lambda: schema_ready.value(blocked) == 1, 20, "the second to wait")
        first.execute("commit" if first_commits else "rollback")
        assert (waiting.result(20) == twin) is first_commits
        assert schema_ready.value("select count(*) from outbox.message") == 1
