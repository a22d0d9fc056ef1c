"""Each role can do its work and nothing else: shown by trying."""

import psycopg
import pytest

TABLES = ("message", "batch", "settlement", "settlement_topic", "parked", "parked_range", "relay")
VIEWS = ("status", "lag", "backlog", "stuck", "receipt", "dispatched_by_month", "leader", "denpyo_migration")
INNER_VIEWS = ("progress", "unclaimed", "unclaimed_later", "open_batch", "claimed")
MESSAGE = "insert into outbox.message (topic, payload) values ('t', 'p')"
BATCH = ("insert into outbox.batch (relay, id, epoch, window_from, window_to, after_id, upto_id, row_count, last_page,"
         " topic_names, partition_counts) values ('r', 1, 1, '1:1:', '9:9:', 0, 9, 1, true, '{}', '{}')")
SETTLEMENT = ("insert into outbox.settlement (relay, id, topic_names, ids, message_ids, topics, partitions, offsets)"
              " values ('r', 1, '{}', '{}', '{}', '{}', '{}', '{}')")
COUNT = "insert into outbox.settlement_topic (relay, batch_id, topic, count) values ('r', 1, 't', 1)"
PARKED = ("insert into outbox.parked (id, relay, message_id, topic, state)"
          " values (1, 'r', '00000000-0000-4000-8000-000000000001', 't', 'failed')")
RANGE = "insert into outbox.parked_range (relay, topic, waits_for_id, ids) values ('r', 't', 1, '{2,3}')"
RELAY = "insert into outbox.relay (name) values ('r')"

ALLOWED = {
    "outbox_writer": [
        MESSAGE,
        MESSAGE + " returning id, message_id",
        MESSAGE + " on conflict do nothing",
        "insert into outbox.message (message_id, topic, key, partition, payload, headers, available_at, dedup_key)"
        " values (outbox.new_message_id(), 't', 'k', 1, 'p', '{}', now(), 'd')",
        "insert into outbox.message (topic, key_bytes, payload_bytes) values ('t', '', '')",
        "insert into outbox.message (topic, key, tombstone) values ('t', 'k', true)",
        "copy outbox.message (topic, payload) from stdin",
        "select outbox.publish('t', 'k', 'p', dedup_key => 'x')",
        "select outbox.publish('t', 'k', '1'::json)",
        "select outbox.publish('t', 'k', '1'::jsonb)",
        "select outbox.publish('t', 'k', 'p'::bytea)",
        "select id, message_id from outbox.message",
    ],
    "outbox_relay": [
        "select * from outbox.message", RELAY, BATCH, SETTLEMENT, COUNT, PARKED, RANGE,
        "select 1 from outbox.relay where name = 'r' for key share",
        "update outbox.relay set epoch = epoch + 1",
        "update outbox.parked set state = 'held'",
        "delete from outbox.parked",
        "update outbox.parked_range set taken_by = 1",
        "delete from outbox.parked_range",
        *[f"select * from outbox.{name}" for name in TABLES + VIEWS],
        "select * from outbox.receipt_of(1)",
        "select * from outbox.receipt_at('t', 1, 1)",
    ],
    "outbox_reader": [
        *[f"select * from outbox.{name}" for name in VIEWS],
        "select * from outbox.receipt_of(1)",
        "select * from outbox.receipt_of('00000000-0000-4000-8000-000000000001'::uuid)",
        "select * from outbox.receipt_at('t', 1, 1)",
    ],
}
CHANGES = [change.format(name) for name in TABLES for change in ("delete from outbox.{}", "truncate outbox.{}")]
LEDGER_CHANGES = [RELAY, BATCH, SETTLEMENT, COUNT, PARKED, RANGE, "update outbox.relay set epoch = 9",
                  "update outbox.parked set state = 'skipped'", "update outbox.batch set epoch = 9",
                  "update outbox.settlement set settled_at = now()", "update outbox.settlement_topic set count = 0"]
EVERYBODY = [
    "update outbox.message set payload = 'q'",
    "select * from outbox.message for update",
    "create table outbox.mine ()",
    "create function outbox.mine() returns int language sql as 'select 1'",
    "insert into outbox.denpyo_migration (version, name) values (9, 'x')",
    "delete from outbox.denpyo_migration",
    "drop view outbox.stuck",
    "alter table outbox.message disable trigger all",
    "select setval('outbox.message_id_seq', 1)",
    "select nextval('outbox.message_id_seq')",
    *[f"select * from outbox.{name}" for name in INNER_VIEWS],
]
FORBIDDEN = {
    "outbox_writer": [
        *[f"insert into outbox.message (topic, payload, {column}) overriding system value values ('t', 'p', {value})"
          for column, value in (("id", "1"), ("xid", "'5'"), ("created_at", "now()"))],
        *[f"select {column} from outbox.message" for column in ("payload", "topic", "xid", "key", "dedup_key")],
        "insert into outbox.message (topic, payload) values ('t', 'p') returning payload",
        *[f"select * from outbox.{name}" for name in TABLES + VIEWS],
        "select * from outbox.receipt_of(1)", "select * from outbox.receipt_at('t', 1, 1)",
        *CHANGES, *LEDGER_CHANGES, *EVERYBODY,
    ],
    "outbox_relay": [
        MESSAGE, "select outbox.publish('t', 'k', 'p')", "select outbox.new_message_id()",
        *[change for change in CHANGES if not change.startswith("delete from outbox.parked")],
        *[change for change in LEDGER_CHANGES if change.startswith("update") and "parked" not in change
          and "relay" not in change],
        *EVERYBODY,
    ],
    "outbox_reader": [
        MESSAGE, "select outbox.publish('t', 'k', 'p')", "select outbox.new_message_id()",
        *[f"select * from outbox.{name}" for name in TABLES],
        "delete from outbox.leader", "update outbox.leader set epoch = 9",
        *CHANGES, *LEDGER_CHANGES, *EVERYBODY,
    ],
}
FORBIDDEN["nobody_special"] = sorted({*FORBIDDEN["outbox_writer"], *FORBIDDEN["outbox_reader"], MESSAGE,
                                      *ALLOWED["outbox_reader"], "select outbox.new_message_id()"})


@pytest.fixture(scope="module")
def connection(postgres, run_denpyo):
    database = postgres.create_database()
    done = run_denpyo("init", "--postgres", database)
    assert done.returncode == 0, done.stderr
    with database.connect() as opened:
        opened.execute("create role nobody_special")
        yield opened
        opened.execute("drop role nobody_special")
    database.drop()


def attempt(connection, role, statements):
    """Runs the statements as the role, in a transaction that is rolled back."""
    with connection.transaction(force_rollback=True), connection.cursor() as cursor:
        cursor.execute(f"set local role {role}")
        for statement in statements:
            if statement.startswith("copy"):
                with cursor.copy(statement) as copy:
                    copy.write_row(("t", "p"))
            else:
                cursor.execute(statement)


@pytest.mark.parametrize("role", ALLOWED)
def test_a_role_can_do_its_work(connection, role):
    attempt(connection, role, ALLOWED[role])


@pytest.mark.parametrize("role, statement", [(role, statement) for role in FORBIDDEN for statement in FORBIDDEN[role]])
def test_a_role_can_do_nothing_else(connection, role, statement):
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        attempt(connection, role, [statement])


def test_the_roles_cannot_log_in_and_own_nothing(connection):
    roles = connection.execute("select rolname, rolcanlogin, rolsuper, rolcreaterole, rolcreatedb, rolreplication"
                               " from pg_roles where rolname like 'outbox%' order by 1").fetchall()
    assert roles == [(name, False, False, False, False, False) for name in ("outbox_reader", "outbox_relay", "outbox_writer")]
    assert connection.execute("select count(*) from pg_class c join pg_roles r on r.oid = c.relowner"
                              " where r.rolname like 'outbox%'").fetchone() == (0,)


def test_what_a_reader_sees_has_no_payload(connection):
    columns = connection.execute(
        "select table_name, column_name from information_schema.column_privileges where table_schema = 'outbox'"
        " and grantee = 'outbox_reader' and column_name in ('payload', 'payload_bytes', 'headers')").fetchall()
    assert columns == []
