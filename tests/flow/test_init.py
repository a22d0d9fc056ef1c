"""denpyo init: safe to repeat and to run at once, refuses what it does not know, and prints itself for a DBA."""

import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from lib.devserver import ROOT

MIGRATIONS = ["0001_outbox", "0002_publish", "0003_views", "0004_decide", "0005_condition", "0006_ranges", "0007_partition",
              "0008_answers", "0009_offsets", "0010_checks", "0011_later", "0012_receipts"]
DATABASE, SCHEMA, PRIVILEGE, USAGE = 3, 5, 6, 2


@pytest.fixture(params=["postgres", "postgres17"])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def empty(server, new_database):
    return new_database(server)


@pytest.fixture
def user(server):
    """Login roles without rights: user(name) creates one; all are dropped afterwards."""
    names = []

    def create(name):
        with server.connect() as connection:
            connection.execute(f"create role {name} login")
        names.append(name)
        return name

    yield create
    with server.connect() as connection:
        for (database,) in connection.execute("select datname from pg_database where datname like 'test%'").fetchall():
            with server.connect(database) as inside:
                for name in names:
                    inside.execute(f"drop owned by {name}")
        for name in names:
            connection.execute(f"drop role {name}")


def migrations(database, schema="outbox"):
    return [name for (name,) in database.rows(f'select name from "{schema}".denpyo_migration order by version')]


def publish_one(database, schema='"outbox"'):
    database.execute(f"insert into {schema}.message (topic, payload) values ('t', 'p')")
    return database.rows(f"select topic, state from {schema}.status") == [("t", "pending")]


def test_init_makes_the_schema_and_can_be_repeated(run_denpyo, empty):
    first = run_denpyo("init", "--postgres", empty)
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.splitlines()[:1 + len(MIGRATIONS)] == ['schema "outbox": created', *[f"migration {m}: applied" for m in MIGRATIONS]]
    assert migrations(empty) == MIGRATIONS
    again = run_denpyo("init", "--postgres", empty)
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.splitlines()[0] == f'schema "outbox": up to date, version {len(MIGRATIONS)}'
    assert publish_one(empty)


def test_receipts_are_compressed_with_the_best_that_the_server_has(empty, initialise):
    methods = empty.value("select enumvals from pg_settings where name = 'default_toast_compression'")
    used = initialise(empty).rows("select distinct attcompression from pg_attribute where attrelid = 'outbox.settlement'::regclass"
                                  " and attname in ('ids', 'message_ids', 'topics', 'partitions', 'offsets')")
    assert used == [("l" if "lz4" in methods else "",)]


def test_several_inits_at_once_do_the_work_once(run_denpyo, empty):
    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda _: run_denpyo("init", "--postgres", empty), range(6)))
    assert [(d.returncode, d.stderr) for d in done] == [(0, "")] * 6
    assert sum("created" in d.stdout for d in done) == 1
    assert migrations(empty) == MIGRATIONS


def test_init_under_another_default_isolation_sees_what_it_waited_for(run_denpyo, empty):
    empty.execute(f"alter database {empty.name} set default_transaction_isolation to 'serializable'")
    empty.execute(f"alter database {empty.name} set default_transaction_read_only to on")
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: run_denpyo("init", "--postgres", empty), range(3)))
    assert [(d.returncode, d.stderr) for d in done] == [(0, "")] * 3


def test_a_newer_schema_is_refused(run_denpyo, empty, initialise):
    initialise(empty).execute("insert into outbox.denpyo_migration (version, name) values (1000, '1000_future')")
    done = run_denpyo("init", "--postgres", empty)
    assert (done.returncode, done.stdout) == (SCHEMA, "")
    assert f"version 1000, newer than the {len(MIGRATIONS)} this denpyo knows" in done.stderr


def test_a_foreign_schema_is_refused_and_left_alone(run_denpyo, empty):
    empty.execute("create schema outbox")
    empty.execute("create table outbox.message (theirs text)")
    done = run_denpyo("init", "--postgres", empty)
    assert (done.returncode, done.stdout) == (SCHEMA, "")
    assert 'schema "outbox" exists and is not denpyo\'s' in done.stderr
    assert empty.rows("select relname from pg_class where relnamespace = 'outbox'::regnamespace") == [("message",)]


def test_an_empty_schema_that_a_dba_made_is_filled_by_its_owner(run_denpyo, empty, user):
    owner = user("schema_owner")
    empty.execute(f"create schema outbox authorization {owner}")
    done = run_denpyo("init", "--postgres", empty.server.conninfo(empty.name, user=owner))
    assert done.returncode == 0, done.stderr
    assert migrations(empty) == MIGRATIONS


@pytest.mark.parametrize("name", ["Out Box", 'quo"ted', "o'clock", "sélect", "public"])
def test_any_schema_name_will_do(run_denpyo, empty, name):
    quoted = '"' + name.replace('"', '""') + '"'
    for _ in range(2):
        done = run_denpyo("init", "--postgres", empty, "--schema", name)
        assert done.returncode == 0, done.stderr
    assert publish_one(empty, quoted)
    empty.execute(f"select {quoted}.publish('t', 'k', 'v')")
    assert empty.value(f"select count(*) from {quoted}.lag") == 1


def psql(database, script):
    return subprocess.run(["psql", "-X", "-q", "-d", str(database)], input=script, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["outbox", 'Quo"ted'])
def test_print_touches_no_server_and_psql_can_run_it_twice(run_denpyo, empty, name):
    printed = run_denpyo("init", "--print", "--schema", name, "--postgres", "host=nowhere.invalid")
    assert (printed.returncode, printed.stderr) == (0, "")
    for _ in range(2):
        done = psql(empty, printed.stdout)
        assert (done.returncode, done.stderr) == (0, "")
    after = run_denpyo("init", "--schema", name, "--postgres", empty)
    assert f'schema "{name}": up to date, version {len(MIGRATIONS)}' in after.stdout
    assert publish_one(empty, '"' + name.replace('"', '""') + '"')


def test_each_file_runs_in_psql_by_itself(empty):
    names = ["0000_schema", "0000_migrations", *MIGRATIONS, "roles"]
    script = "\\set ON_ERROR_STOP on\n\\set schema outbox\n\\set writer w_p\n\\set relay r_p\n\\set reader d_p\n"
    script += "".join(f"\\i {ROOT}/schemas/{name}.sql\n" for name in names)
    done = psql(empty, script)
    assert (done.returncode, done.stderr) == (0, "")
    assert migrations(empty) == MIGRATIONS
    for role in ("w_p", "r_p", "d_p"):
        empty.execute(f"drop owned by {role}")
        empty.execute(f"drop role {role}")


def test_without_the_right_to_make_roles_their_sql_is_printed(run_denpyo, empty, user):
    owner = user("no_createrole")
    empty.execute(f"grant create on database {empty.name} to {owner}")
    flags = ["--roles-writer", "w_new", "--roles-relay", "r_new", "--roles-reader", "d_new"]
    done = run_denpyo("init", "--postgres", empty.server.conninfo(empty.name, user=owner), *flags)
    assert (done.returncode, done.stderr) == (0, "")
    assert migrations(empty) == MIGRATIONS
    head, sql = done.stdout.split("somebody who may should run this:\n")
    assert "migration 0003_views: applied" in head
    applied = psql(empty, sql)
    assert (applied.returncode, applied.stderr) == (0, "")
    assert empty.value("select has_table_privilege('r_new', 'outbox.batch', 'insert')")
    again = run_denpyo("init", "--postgres", empty.server.conninfo(empty.name, user=owner), *flags)
    assert 'roles "w_new", "r_new", "d_new": in place' in again.stdout
    for role in ("w_new", "r_new", "d_new"):
        empty.execute(f"drop owned by {role}")
        empty.execute(f"drop role {role}")


def test_without_the_right_to_make_a_schema_init_says_which_grant_is_missing(run_denpyo, empty, user):
    done = run_denpyo("init", "--postgres", empty.server.conninfo(empty.name, user=user("nobody")))
    assert (done.returncode, done.stdout) == (PRIVILEGE, "")
    assert "GRANT CREATE ON DATABASE" in done.stderr and "denpyo init --print" in done.stderr


def test_a_failed_init_leaves_nothing_behind(run_denpyo, empty):
    empty.execute("create function refuse() returns event_trigger language plpgsql as"
                  " $$ begin if tg_tag = 'CREATE VIEW' then raise 'no views here'; end if; end $$")
    empty.execute("create event trigger refuse on ddl_command_end execute function refuse()")
    done = run_denpyo("init", "--postgres", empty)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no views here" in done.stderr
    assert empty.value("select count(*) from pg_namespace where nspname = 'outbox'") == 0


def make_older(database, before):
    """The schema as it was before a migration."""
    names = ["0000_schema", "0000_migrations", *(name for name in MIGRATIONS if name < before)]
    script = "\\set ON_ERROR_STOP on\n\\set schema outbox\n" + "".join(f"\\i {ROOT}/schemas/{name}.sql\n" for name in names)
    assert psql(database, script).returncode == 0


def test_an_index_that_was_made_beforehand_and_not_finished_is_refused(run_denpyo, empty):
    make_older(empty, "0011")
    empty.execute("create index message_later on outbox.message (xid, id) where available_at is not null")
    empty.execute("update pg_index set indisvalid = false where indexrelid = 'outbox.message_later'::regclass")
    done = run_denpyo("init", "--postgres", empty)
    assert done.returncode != 0 and "message_later is not valid" in done.stderr and "drop index outbox.message_later" in done.stderr, done.stderr
    empty.execute("drop index outbox.message_later")
    assert run_denpyo("init", "--postgres", empty).returncode == 0
    assert migrations(empty) == MIGRATIONS


@pytest.mark.parametrize("before, read", [("0012", "status"), ("0012", "receipt"), ("0009", "settlement"), ("0005", "relay")])
def test_others_do_not_queue_long_behind_an_init_that_waits(run_denpyo, empty, before, read):
    make_older(empty, before)
    with empty.connect() as report:
        report.execute("begin")
        report.execute(f"select count(*) from outbox.{read}")
        refused = run_denpyo("init", "--postgres", empty, timeout=30)
        assert refused.returncode != 0 and "lock timeout" in refused.stderr and "try again when it has ended" in refused.stderr, refused
        report.execute("commit")
    assert run_denpyo("init", "--postgres", empty).returncode == 0
    assert migrations(empty) == MIGRATIONS


@pytest.mark.parametrize("conninfo, code, text", [
    ("host=127.0.0.1 port=1", DATABASE, "Connection refused"),
    ("host=127.0.0.1 port=1 password=hush", DATABASE, "Connection refused"),
    ("host=127.0.0.1 password=hush word", USAGE, "no valid conninfo"),
    ("postgresql://u:hush@127.0.0.1:1/d?nonsense=1", USAGE, "no valid conninfo"),
    ('pos"tgresql://u:hush@127.0.0.1:1/d?sslmode=disable', USAGE, "no valid conninfo"),
])
def test_an_unusable_conninfo_is_named_with_its_origin_and_without_its_password(run_denpyo, conninfo, code, text):
    by_flag = run_denpyo("init", "--postgres", conninfo)
    by_variable = run_denpyo("init", env={"DENPYO_POSTGRES": conninfo})
    for done, origin in ((by_flag, "flag"), (by_variable, "environment")):
        assert done.returncode == code
        assert text in done.stderr and f"from: {origin}" in done.stderr
        assert "hush" not in done.stderr and "word" not in done.stderr.replace("password", "")
        assert done.stderr.count("\n") == 1


def test_a_database_that_does_not_exist_is_said_so(run_denpyo, server):
    done = run_denpyo("init", "--postgres", server.conninfo("nowhere"))
    assert done.returncode == DATABASE
    assert 'database "nowhere" does not exist' in done.stderr
