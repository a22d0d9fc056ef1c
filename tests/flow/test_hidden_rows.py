"""Rows that the database hides from the relay, and privileges it lacks, are found at the start and never read past."""

import re
import uuid

import pytest
from verify import verify

TABLES = ("message", "batch", "settlement", "settlement_topic", "parked", "parked_range", "relay")
NOWHERE = "127.0.0.1:1"
BROKER, PRIVILEGE = 4, 6
POLICY = r'policy for table \"%s\"'


@pytest.fixture
def user(outbox):
    """A login role that has the relay's, as an operator would make it; its name."""
    name = f"user_{uuid.uuid4().hex[:8]}"
    outbox.sql(f"create role {name} login")
    outbox.sql(f"grant outbox_relay to {name}")
    yield name
    outbox.sql(f"reassign owned by {name} to postgres")
    outbox.sql(f"drop owned by {name}")
    outbox.sql(f"drop role {name}")


def conninfo_of(outbox, user):
    return outbox.database.server.conninfo(outbox.database.name, user=user)


@pytest.fixture
def ask(outbox, user, run_denpyo):
    """What a command says of this database, as that user: (exit code, its line about privileges or its last one)."""

    def run(command, as_user=user):
        done = run_denpyo(command, "--postgres", conninfo_of(outbox, as_user), "--brokers", NOWHERE, "--no-progress")
        if command == "run":
            return done.returncode, done.stderr.strip().split("\n")[-1]
        (line,) = [line for line in done.stdout.split("\n") if " privileges " in line]
        return done.returncode, line

    return run


def assert_refused(ask, statement):
    """`denpyo check` and `denpyo run` both refuse, and name the statement."""
    for command in ("check", "run"):
        code, line = ask(command)
        assert code == PRIVILEGE and statement in line, (command, code, line)


def assert_good(ask):
    line = ask("check")[1]
    assert line.startswith("OK "), line


def test_row_level_security_is_refused_at_the_start(outbox, ask, user):
    assert_good(ask)
    for table in TABLES:
        outbox.sql(f"alter table outbox.{table} enable row level security")
        statement = f'alter table "outbox"."{table}" disable row level security'
        assert_refused(ask, statement)
        assert f'alter role "{user}" bypassrls' in ask("run")[1]
        outbox.sql(statement)
    assert_good(ask)
    for table in TABLES:
        outbox.sql(f"alter table outbox.{table} enable row level security")
    line = ask("check")[1]
    assert all(f'"{table}" disable' in line for table in TABLES), line
    outbox.sql(f"alter role {user} bypassrls")
    assert_good(ask)
    assert ask("run")[0] == BROKER  # it gets as far as to there


def test_a_policy_that_shows_everything_today_is_refused_as_well(outbox, ask):
    outbox.sql("alter table outbox.message enable row level security")
    outbox.sql("create policy everything on outbox.message using (true)")
    assert_refused(ask, 'alter table "outbox"."message" disable row level security')


def test_an_owner_whom_forced_row_level_security_binds_is_refused(outbox, ask, user):
    outbox.sql(f"grant usage, create on schema outbox to {user}")
    outbox.sql(f"alter table outbox.message owner to {user}")
    outbox.sql("alter table outbox.message enable row level security")
    assert_good(ask)
    outbox.sql("alter table outbox.message force row level security")
    assert_refused(ask, 'alter table "outbox"."message" disable row level security')
    # The superuser is not bound; the views and functions, which run as the owner, are.
    code, line = ask("check", "postgres")
    assert code == PRIVILEGE and 'alter table "outbox"."message" no force row level security' in line
    outbox.sql('alter table "outbox"."message" no force row level security')
    assert_good(ask)


@pytest.mark.parametrize("revoked", [
    "insert on outbox.settlement", "insert on outbox.settlement_topic", "select on outbox.parked", "delete on outbox.parked",
    "insert on outbox.batch", "select on outbox.message"])
def test_a_missing_privilege_is_refused_with_the_grant_that_mends_it(outbox, ask, revoked):
    outbox.sql(f"revoke {revoked} from outbox_relay")
    code, line = ask("run")
    (statement,) = re.findall(r'grant \w+ on "outbox"\."\w+" to "outbox_relay"', line)
    assert code == PRIVILEGE and revoked.split()[0].upper() in statement
    assert_refused(ask, statement)
    outbox.sql(statement)
    assert_good(ask)


def test_select_on_some_columns_is_not_enough_and_on_each_of_them_is(outbox, ask):
    columns = [name for (name,) in outbox.sql("select attname from pg_attribute where attrelid = 'outbox.message'::regclass"
                                              " and attnum > 0 and not attisdropped")]
    outbox.sql("revoke select on outbox.message from outbox_relay")
    outbox.sql(f"grant select ({', '.join(columns[1:])}) on outbox.message to outbox_relay")
    assert_refused(ask, 'grant SELECT on "outbox"."message" to "outbox_relay"')
    outbox.sql(f"grant select ({columns[0]}) on outbox.message to outbox_relay")
    assert_good(ask)


def test_rows_of_a_child_table_are_sent_whatever_rights_and_policies_the_child_has(outbox, kafka, relay, user):
    """PostgreSQL judges by the table that is asked, and that is the parent."""
    topic = kafka.create_topic()
    outbox.sql("create table outbox.child () inherits (outbox.message)")
    outbox.sql("alter table outbox.child enable row level security")
    outbox.sql("insert into outbox.child (id, topic, key, payload) select nextval('outbox.message_id_seq'), %s, 'k', n"
               " from generate_series(1, 10) n", topic)
    outbox.generate(topic, 10)
    relay(conninfo_of(outbox, user))
    outbox.wait_dispatched(20, topic)
    assert verify(outbox.database, kafka, [topic]).exactly_once()


def test_a_policy_made_under_a_running_relay_stops_it_and_loses_nothing(outbox, kafka, relay, user):
    topic = kafka.create_topic(partitions=2)
    running = relay(conninfo_of(outbox, user), "--poll-idle-ms", 10)
    outbox.generate(topic, 50)
    outbox.wait_dispatched(50, topic)
    # It hides every other row; a relay that filtered would go on with the rest, and move its cursor past these.
    outbox.sql("create policy halves on outbox.message using (id % 2 = 0)")
    outbox.sql("alter table outbox.message enable row level security")
    outbox.generate(topic, 50, first=51)
    line = running.wait_log(POLICY % "message")
    assert " error " in line and 'alter table \\"outbox\\".\\"message\\" disable row level security' in line
    assert f'alter role \\"{user}\\" bypassrls' in line
    outbox.generate(topic, 50, first=101)
    assert not verify(outbox.database, kafka, [topic]).disordered
    assert outbox.sql("select max(upto_id) <= 50 as still from outbox.batch")[0].still
    outbox.sql('alter table "outbox"."message" disable row level security')
    outbox.wait_dispatched(150, topic)
    assert verify(outbox.database, kafka, [topic]).exactly_once()
    running.wait_log("database is back")


def test_a_policy_on_any_table_of_the_ledger_stops_the_relay_until_it_is_gone(outbox, kafka, relay, user):
    topic = kafka.create_topic()
    running = relay(conninfo_of(outbox, user), "--poll-idle-ms", 10)
    outbox.insert(topic, key="k", payload="p")
    outbox.wait_dispatched(1, topic)
    for count, table in enumerate(sorted(set(TABLES) - {"parked_range"}), 2):  # nobody asks for that one while nothing is parked
        outbox.sql(f"alter table outbox.{table} enable row level security")
        outbox.insert(topic, key="k", payload="p")
        running.wait_log(POLICY % table)
        outbox.sql(f"alter table outbox.{table} disable row level security")
        outbox.wait_dispatched(count, topic)
    assert verify(outbox.database, kafka, [topic]).exactly_once()
    assert running.running


def test_the_sweep_by_hand_is_not_fooled_by_a_policy(outbox, run_denpyo, user):
    outbox.generate("t", 10)
    outbox.sql("create policy none on outbox.message using (false)")
    outbox.sql("alter table outbox.message enable row level security")
    done = run_denpyo("check", "--sweep", "--postgres", conninfo_of(outbox, user), "--brokers", NOWHERE)
    (line,) = [line for line in done.stdout.split("\n") if " sweep " in line]
    assert line.startswith("FAIL") and 'policy for table "message"' in line
