"""status, show and check on real servers: what an operator reads, and the exit codes that scripts rely on."""

import json
import os
import subprocess
import uuid

import pytest

from ledger import Ledger
from lib.devserver import free_port
from lib.relay import clean_environment
from lib.wait import wait_until

CHECKS = ["connection", "server", "pooling", "clock", "schema", "privileges", "broker", "topics"]
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def outbox(schema_ready):
    with schema_ready.connect() as connection:
        yield connection


@pytest.fixture
def ledger(outbox):
    return Ledger(outbox)


def insert(connection, topic="orders", key="k", **columns):
    """One message; its id and its message id."""
    names = ["topic", "key", "payload", *columns]
    return connection.execute(
        f"insert into outbox.message ({', '.join(names)}) values ({', '.join(['%s'] * len(names))})"
        " returning id, message_id::text", [topic, key, "x", *columns.values()]).fetchone()


def results(done):
    """check's (check -> result) of the last line of each name, from its text or its JSON."""
    if done.stdout.startswith("["):
        return {line["check"]: line["result"] for line in json.loads(done.stdout)}
    return {line.split()[1]: line.split()[0] for line in done.stdout.splitlines()}


def line_of(done, check):
    (line,) = [line for line in done.stdout.splitlines() if line.split()[1] == check]
    return line


# --- status ---


def test_status_of_an_empty_outbox_says_so(run_denpyo, schema_ready):
    done = run_denpyo("status", "--postgres", schema_ready)
    assert done.returncode == 0
    assert "The outbox is empty and nothing was sent yet." in done.stdout
    assert "No relay was ever started" in done.stdout
    assert "No troubles." in done.stdout


def test_status_counts_and_explains(run_denpyo, schema_ready, outbox, ledger):
    rows = [insert(outbox, key=f"k{i}") for i in range(5)]
    batch = ledger.claim(10)
    ledger.settle(batch, [rows[0][0]], {rows[1][0]: "failed", rows[2][0]: "rejected", rows[3][0]: "held",
                                        rows[4][0]: "rejected"})
    insert(outbox)
    insert(outbox, "later", available_at="2999-01-01")
    shown = json.loads(run_denpyo("status", "--json", "--postgres", schema_ready).stdout)
    orders, = [topic for topic in shown["topics"] if topic["topic"] == "orders"]
    counts = {name: orders[name] for name in ("pending", "delayed", "held", "requesting", "failed", "rejected")}
    assert counts == {"pending": 1, "delayed": 0, "held": 1, "requesting": 0, "failed": 1, "rejected": 2}
    assert orders["oldest_pending_seconds"] >= 0 and orders["last_dispatched_seconds"] >= 0
    assert [(t["problem"], t["messages"], t["first_message_id"]) for t in shown["troubles"]] == [
        ("rejected", 2, rows[2][1]), ("failed", 1, rows[1][1])]
    text = run_denpyo("status", "--postgres", schema_ready).stdout
    assert any(line.split()[:7] == ["orders", "1", "0", "1", "0", "1", "2"] for line in text.splitlines())
    assert any(line.split()[:3] == ["later", "0", "1"] for line in text.splitlines())
    assert "rejected in orders, 2 messages" in text and "CODE: reason" in text
    assert f"denpyo show {rows[2][1]}" in text


def test_status_does_not_call_it_well_when_messages_wait_and_nobody_leads(run_denpyo, schema_ready, outbox, ledger):
    def status():
        return run_denpyo("status", "--postgres", schema_ready).stdout

    assert "No troubles." in status()
    insert(outbox)
    assert "No troubles." not in status() and "messages wait and nobody leads" in status()
    ledger.sql("update outbox.relay set holder = gen_random_uuid(), lease_expires_at = now() + interval '1 hour'")
    assert "No troubles." in status() and "nobody leads" not in status()


def test_status_shows_who_leads(run_denpyo, schema_ready, outbox, ledger):
    assert 'Relay "default": nobody leads' in run_denpyo("status", "--postgres", schema_ready).stdout
    ledger.sql("update outbox.relay set holder = gen_random_uuid(), holder_info = 'db7:42', version = '9.9',"
               " lease_expires_at = now() + interval '1 hour', heartbeat_at = now()")
    text = run_denpyo("status", "--postgres", schema_ready).stdout
    assert 'Relay "default": led by db7:42 (version 9.9), epoch 1, lease for 60 min, last heard from' in text


def test_status_watches_until_interrupted_and_waits_for_a_database(denpyo, own_postgres, new_database, initialise):
    server = own_postgres()
    database = initialise(new_database(server))
    command = [denpyo, "status", "--watch", "--json", "--postgres", str(database)]
    with subprocess.Popen(command, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as watch:
        try:
            assert json.loads(watch.stdout.readline())["topics"] == []
            database.execute("insert into outbox.message (topic, payload) values ('orders', 'x')")
            wait_until(lambda: json.loads(watch.stdout.readline())["topics"], 20, "the new topic")
            server.stop("immediate")
            assert watch.stderr.readline().startswith("denpyo: PostgreSQL")
            server.start()
            assert json.loads(watch.stdout.readline())["topics"][0]["topic"] == "orders"
            assert watch.poll() is None
        finally:
            watch.terminate()


# --- show ---


def show(run_denpyo, database, which):
    """(exit code, the sentence) for a message; the same by its number as by its message id."""
    (number, message_id) = which
    by_number = run_denpyo("show", number, "--postgres", database)
    by_message_id = run_denpyo("show", message_id, "--postgres", database)
    assert (by_number.stdout, by_number.returncode) == (by_message_id.stdout, by_message_id.returncode)
    assert message_id in by_number.stdout
    return by_number.returncode, by_number.stdout.splitlines()[0]


def test_show_answers_for_every_state(run_denpyo, schema_ready, outbox, ledger):
    parked = ("failed", "rejected", "held", "skipped")
    rows = {state: insert(outbox, key="failed" if state == "held" else state) for state in ("dispatched", *parked)}
    ledger.settle(ledger.claim(10), [rows["dispatched"][0]], {rows[state][0]: state for state in parked})
    ledger.sql("update outbox.parked set waits_for_id = %s where state = 'held'", rows["failed"][0])
    ledger.sql("update outbox.parked set next_attempt_at = '2999-01-01T00:00:00Z' where state = 'failed'")
    rows["requesting"] = insert(outbox)
    ledger.claim(10)
    rows["pending"] = insert(outbox)
    rows["delayed"] = insert(outbox, available_at="2999-01-01T00:00:00Z")
    number = rows["dispatched"][0]
    expected = {
        "dispatched": (0, f"Yes: it went out to topic orders, partition {number % 8}, offset {number * 10};"),
        "requesting": (0, "Perhaps: it was claimed at "),
        "pending": (0, 'Not yet: it is committed and waits for its turn. No relay leads now: "denpyo run" starts one.'),
        "delayed": (0, "Not yet: it is to be sent at 2999-01-01T"),
        "failed": (1, "Not yet: trying failed (CODE: reason); the next try is at 2999-01-01T"),
        "held": (1, f"Not yet: it waits for message {rows['failed'][0]}, an earlier one of its key that has not gone out."),
        "rejected": (1, "No: it can never be sent as it is (CODE: reason); a person has to decide."),
        "skipped": (1, "No: a person decided that it is not sent (reason)."),
    }
    for state, (code, sentence) in expected.items():
        found_code, found = show(run_denpyo, schema_ready, rows[state])
        assert (state, found_code, found[:len(sentence)]) == (state, code, sentence)
    answer = json.loads(run_denpyo("show", "--json", rows["failed"][1].upper(), "--postgres", schema_ready).stdout)
    assert answer["state"] == "failed" and answer["answer"].startswith("Not yet: trying failed")


@pytest.mark.parametrize("key, scope, its", [(None, "key", "topic"), ("k", "topic", "topic"), ("k", "key", "key")])
def test_show_says_what_a_held_message_has_in_common_with_the_one_it_waits_for(
        run_denpyo, schema_ready, outbox, ledger, key, scope, its):
    first, held = insert(outbox, key=key), insert(outbox, key=key)
    ledger.settle(ledger.claim(10), [], {first[0]: "failed", held[0]: "held"})
    ledger.sql("update outbox.parked set waits_for_id = %s, scope = %s where state = 'held'", first[0], scope)
    assert f"waits for message {first[0]}, an earlier one of its {its} that" in show(run_denpyo, schema_ready, held)[1]


def test_show_answers_after_the_message_was_removed(run_denpyo, schema_ready, outbox, ledger):
    row = insert(outbox)
    ledger.drain(10)
    outbox.execute("delete from outbox.message")
    code, sentence = show(run_denpyo, schema_ready, row)
    assert code == 0
    assert sentence.startswith("Yes: it went out") and sentence.endswith("The message itself was removed since.")


def test_show_knows_no_such_message(run_denpyo, schema_ready):
    for which in (uuid.uuid4(), 4711):
        done = run_denpyo("show", which, "--postgres", schema_ready)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"there is no message {which} in this outbox" in done.stderr


def test_show_lets_no_control_character_reach_the_terminal(run_denpyo, schema_ready, outbox):
    row = insert(outbox, key="\x1b[31mred\nline")
    done = run_denpyo("show", row[0], "--postgres", schema_ready)
    assert "key              ?[31mred line\n" in done.stdout


# --- check ---


def test_check_is_content_with_what_works(run_denpyo, schema_ready, outbox, kafka):
    topic = kafka.create_topic(partitions=3)
    insert(outbox, topic)
    done = run_denpyo("check", "--postgres", schema_ready, "--brokers", kafka.bootstrap)
    assert (done.returncode, done.stderr) == (0, "")
    assert results(done) == dict.fromkeys(CHECKS, "OK")
    assert f"{topic} has 3 partitions" in line_of(done, "topics")
    assert results(run_denpyo("check", "--json", "--postgres", schema_ready, "--brokers", kafka.bootstrap)) == results(done)


def test_check_names_the_topic_that_is_missing_and_creates_none(run_denpyo, schema_ready, outbox, kafka_autocreate):
    insert(outbox, "nobody-made-this")
    done = run_denpyo("check", "--postgres", schema_ready, "--brokers", kafka_autocreate.bootstrap)
    assert done.returncode == 1
    assert line_of(done, "topics").startswith("FAIL  topics      nobody-made-this is not on the brokers")
    assert "nobody-made-this" not in kafka_autocreate.topics()


def test_check_goes_on_without_a_database(run_denpyo, kafka):
    done = run_denpyo("check", "--postgres", "host=127.0.0.1 port=1 user=x", "--brokers", kafka.bootstrap)
    assert done.returncode == 3
    assert results(done) == dict.fromkeys(CHECKS, "SKIP") | {"connection": "FAIL", "broker": "OK"}
    assert "Connection refused" in line_of(done, "connection")


def test_check_goes_on_without_a_broker(run_denpyo, schema_ready):
    done = run_denpyo("check", "--postgres", schema_ready, "--brokers", NOWHERE)
    assert done.returncode == 4
    assert results(done) == dict.fromkeys(CHECKS, "OK") | {"broker": "FAIL", "topics": "SKIP"}
    assert f"no Kafka broker at {NOWHERE} answers" in line_of(done, "broker")
    assert "Connection refused" in line_of(done, "broker")


@pytest.mark.parametrize("pair, reason", [
    ("compresion.type=lz4", 'kafka.compresion.type: librdkafka has no such property; did you mean "compression.type"?'),
    ("compression.levle=3", 'did you mean "compression.level"?'),  # of a topic, to librdkafka
    ("no.likeness=1", "kafka.no.likeness: librdkafka"),
    ("acks=1", "kafka.acks=1 is refused"),
    ("retries=3", "kafka.retries=3 is refused"),
    ("message.send.max.retries=3", "kafka.message.send.max.retries=3 is refused"),
    ("delivery.timeout.ms=1000", "kafka.delivery.timeout.ms=1000 is refused"),
    ("sasl.mechanism=NONSENSE", "NONSENSE"),
])
def test_check_refuses_the_properties_that_run_refuses(run_denpyo, schema_ready, pair, reason):
    where = ["--postgres", schema_ready, "--brokers", NOWHERE, "--kafka", "security.protocol=sasl_plaintext", "--kafka", pair]
    done = run_denpyo("check", *where)
    assert done.returncode == 2
    assert reason in line_of(done, "broker")
    run = run_denpyo("run", *where)
    assert run.returncode == 2
    assert reason in run.stderr


def test_brokers_that_are_not_given_are_wrong_usage_to_check_and_run(run_denpyo, schema_ready):
    done, run = (run_denpyo(command, "--postgres", schema_ready) for command in ("check", "run"))
    assert (done.returncode, run.returncode) == (2, 2)
    assert "no brokers given: use --brokers" in line_of(done, "broker") and "no brokers given: use --brokers" in run.stderr


def test_check_without_schema_says_init(run_denpyo, database, kafka):
    done = run_denpyo("check", "--postgres", database, "--brokers", kafka.bootstrap)
    assert done.returncode == 5
    assert results(done)["schema"] == "FAIL" and "denpyo init" in line_of(done, "schema")
    assert results(done)["privileges"] == "SKIP" and results(done)["broker"] == "OK"


def test_check_on_another_schema_version_says_which(run_denpyo, schema_ready, outbox, kafka):
    outbox.execute("insert into outbox.denpyo_migration (version, name) values (9999, 'from the future')")
    done = run_denpyo("check", "--postgres", schema_ready, "--brokers", kafka.bootstrap)
    assert done.returncode == 5
    assert "9999" in line_of(done, "schema") and "newer denpyo" in line_of(done, "schema")


@pytest.fixture
def user(postgres, outbox):
    """A login role without any right; its name."""
    name = f"user_{uuid.uuid4().hex[:8]}"
    outbox.execute(f"create role {name} login")
    yield name
    outbox.execute(f"drop owned by {name}")
    outbox.execute(f"drop role {name}")


def test_check_as_each_role_says_which_grant_is_missing(run_denpyo, schema_ready, outbox, user, kafka):
    as_user = schema_ready.server.conninfo(schema_ready.name, user=user)

    def check():
        return run_denpyo("check", "--postgres", as_user, "--brokers", kafka.bootstrap)

    done = check()
    assert done.returncode == 6 and "outbox_reader" not in done.stdout
    assert f'GRANT "outbox_relay" TO "{user}"' in line_of(done, "schema")
    outbox.execute(f"grant outbox_reader to {user}")
    done = check()
    assert done.returncode == 6
    assert f'grant "outbox_relay" to "{user}"; it lacks SELECT, INSERT on batch;' in line_of(done, "privileges")
    assert run_denpyo("status", "--postgres", as_user).returncode == 0
    outbox.execute(f"grant outbox_relay to {user}")
    assert results(check()) == dict.fromkeys(CHECKS, "OK")


def test_check_refuses_a_standby(run_denpyo, own_postgres, folders):
    primary = own_postgres()
    folder = folders.new("standby")
    backup = [f"{primary.bindir}/pg_basebackup", "-D", folder / "data", "-R", "-d", primary.conninfo()]
    os.chown(folder, *owner_of(primary.datadir))
    done = subprocess.run(as_owner_of(primary.datadir, backup), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    port, control = free_port(), [f"{primary.bindir}/pg_ctl", "-D", folder / "data", "-w"]
    start = [*control, "-o", f"-p {port} -k {folder}", "-l", folder / "log", "start"]
    assert subprocess.run(as_owner_of(primary.datadir, start), stdout=subprocess.DEVNULL).returncode == 0
    try:
        done = run_denpyo("check", "--postgres", f"host=127.0.0.1 port={port} user=postgres", "--brokers", NOWHERE)
        assert done.returncode == 3
        assert line_of(done, "server").startswith("FAIL") and "in recovery" in line_of(done, "server")
    finally:
        subprocess.run(as_owner_of(primary.datadir, [*control, "-m", "immediate", "stop"]), stdout=subprocess.DEVNULL)


def owner_of(path):
    return path.stat().st_uid, path.stat().st_gid


def as_owner_of(path, command):
    """PostgreSQL's programs refuse root: they run as the one whom the servers' files belong to."""
    uid, gid = owner_of(path)
    command = [str(word) for word in command]
    return ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", *command] if os.getuid() == 0 else command


@pytest.fixture
def pooler(postgres, folders):
    """Starts PgBouncers before the shared server: pooler(mode, database) is the conninfo through one."""
    running = []

    def start(mode, database):
        folder, port = folders.new("pgbouncer"), free_port()
        os.chown(folder, *owner_of(postgres.datadir))
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\n{database.name} = host=127.0.0.1 port={postgres.port} user=postgres\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = any\npool_mode = {mode}\n")
        command = as_owner_of(postgres.datadir, ["pgbouncer", folder / "pgbouncer.ini"])
        running.append(subprocess.Popen(command, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
        for line in running[-1].stderr:
            if "process up" in line:
                return f"host=127.0.0.1 port={port} user=postgres dbname={database.name}"
        raise AssertionError("pgbouncer did not come up")

    yield start
    for process in running:
        process.terminate()
        process.wait()
        process.stderr.close()


def test_check_refuses_statement_pooling(run_denpyo, schema_ready, pooler):
    done = run_denpyo("check", "--postgres", pooler("statement", schema_ready), "--brokers", NOWHERE)
    assert done.returncode == 3
    assert line_of(done, "pooling").startswith("FAIL") and "set its pool_mode to transaction" in line_of(done, "pooling")


def test_check_is_content_with_transaction_pooling(run_denpyo, schema_ready, pooler, kafka):
    through = ["--postgres", pooler("transaction", schema_ready), "--brokers", kafka.bootstrap]
    done = run_denpyo("check", *through)
    assert done.returncode == 0
    assert results(done) == dict.fromkeys(CHECKS, "OK") | {"pooling": "WARN"}
    assert "--no-prepare" in line_of(done, "pooling")
    assert results(run_denpyo("check", "--no-prepare", *through)) == dict.fromkeys(CHECKS, "OK")


# --- every command's bad day ---


@pytest.mark.parametrize("command", [["status"], ["show", "1"], ["run", "--brokers", NOWHERE]])
def test_a_refusal_is_one_line_and_its_exit_code(run_denpyo, command, database, initialise):
    def refusal(conninfo):
        done = run_denpyo(*command, "--postgres", conninfo)
        assert done.stdout == "" and done.stderr.count("\n") == 1
        return done.returncode, done.stderr

    code, text = refusal("host=127.0.0.1 port=1")
    assert code == 3 and "Connection refused (Is the server running on that host and accepting TCP/IP connections?)" in text
    code, text = refusal("host=127.0.0.1,127.0.0.2 port=1")
    assert code == 3 and '?); connection to server at "127.0.0.2", port 1 failed: ' in text
    code, text = refusal(database.server.conninfo("no_such_database"))
    assert code == 3 and 'database "no_such_database" does not exist' in text
    code, text = refusal("this is no conninfo")
    assert code == 2 and "postgres" in text
    code, text = refusal(database)
    assert code == 5 and 'run "denpyo init"' in text
    initialise(database)
    database.execute("create role nobody_special login")
    code, text = refusal(database.server.conninfo(database.name, user="nobody_special"))
    database.execute("drop role nobody_special")
    role = "outbox_relay" if command[0] == "run" else "outbox_reader"
    assert code == 6 and f'; GRANT "{role}" TO "nobody_special"' in text
