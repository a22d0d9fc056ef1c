"""What the table's constraints cost its writers, and how a table that is there comes by new ones."""

import subprocess

import psycopg
import pytest

from lib.devserver import ROOT

# PostgreSQL reads the stored form of every check of a table anew for each statement.
STORED_BYTES = 3000
BEFORE = 9


@pytest.fixture
def older(database):
    """A database with the schema as it was before the checks moved into domains."""
    files = sorted((ROOT / "schemas").glob("0*.sql"))
    files = [ROOT / "schemas" / name for name in ("0000_schema.sql", "0000_migrations.sql")] + \
            [file for file in files if 1 <= int(file.name[:4]) <= BEFORE]
    done = subprocess.run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-v", "schema=outbox", "-d", str(database),
                           *(word for file in files for word in ("-f", str(file)))], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return database


def insert(connection, topic):
    connection.execute("insert into outbox.message (topic, payload) values (%s, 'p')", (topic,))


def test_a_statement_reads_little_of_the_checks(schema_ready):
    stored = schema_ready.value("select sum(octet_length(conbin::text)) from pg_constraint"
                                " where conrelid = 'outbox.message'::regclass and contype = 'c'")
    assert stored < STORED_BYTES


def test_a_table_gets_the_new_checks_without_being_read(older, initialise):
    with older.connect() as connection:
        connection.execute("alter table outbox.message drop constraint message_topic_is_a_kafka_name")
        insert(connection, "not a topic")  # whoever reads the table stumbles over it
        connection.execute("alter table outbox.message add constraint message_topic_is_a_kafka_name check (topic <> '') not valid")
        file = "select pg_relation_filepath('outbox.message')"
        before = connection.execute(file).fetchone()
        initialise(older)
        assert connection.execute(file).fetchone() == before
        with pytest.raises(psycopg.errors.CheckViolation) as refused:
            insert(connection, "not a topic either")
        assert refused.value.diag.constraint_name == "message_topic_is_a_kafka_name"
        insert(connection, "topic")


def test_inserts_do_not_queue_long_behind_an_init_that_waits(older, run_denpyo, initialise):
    with older.connect() as writer, older.connect() as another:
        writer.execute("begin")
        insert(writer, "topic")
        refused = run_denpyo("init", "--postgres", older)
        assert refused.returncode != 0 and "lock timeout" in refused.stderr and "try again when it has ended" in refused.stderr
        insert(another, "topic")
        writer.execute("commit")
    initialise(older)


def test_a_dump_restores_the_checks(schema_ready, postgres, new_database):
    with schema_ready.connect() as connection:
        insert(connection, "topic")
    dump = subprocess.run(["pg_dump", "-d", str(schema_ready)], capture_output=True, text=True, check=True).stdout
    restored = new_database(postgres)
    done = subprocess.run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", str(restored)], input=dump, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with restored.connect() as connection:
        insert(connection, "topic")
        with pytest.raises(psycopg.errors.CheckViolation):
            insert(connection, "not a topic")
