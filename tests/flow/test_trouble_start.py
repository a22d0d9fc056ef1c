"""Bad input to a relay, at its start and while it runs: the reason, who has to do what, and one line on each change."""

import uuid

import pytest

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def user(outbox):
    """A login role that may only read the views; its name."""
    name = f"user_{uuid.uuid4().hex[:8]}"
    outbox.sql(f"create role {name} login in role outbox_reader")
    yield name
    outbox.sql(f"drop owned by {name}")
    outbox.sql(f"drop role {name}")


def refusal(done):
    """(exit code, the only line) of a command that was refused."""
    assert done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("setting, reason", [
    ("no.such.property=1", "no.such.property"),
    ("compression.type=zip", "zip"),
    ("linger.ms=soon", "linger.ms"),
    ("acks=1", "acks"),
    ("enable.idempotence=false", "enable.idempotence"),
    ("message.timeout.ms=1000", "message.timeout.ms"),
    ("ssl.ca.location=/no/such/file", "ssl.ca.location"),
])
def test_a_property_that_cannot_work_is_named(run_denpyo, schema_ready, setting, reason):
    options = ["--postgres", schema_ready, "--brokers", NOWHERE, "--kafka", setting]
    if setting.startswith("ssl."):
        options += ["--kafka", "security.protocol=ssl"]
    code, line = refusal(run_denpyo("run", *options))
    assert code == 2 and "kafka" in line.lower() and reason in line


def test_no_brokers_is_wrong_usage_that_names_the_ways_to_give_them(run_denpyo, schema_ready):
    code, line = refusal(run_denpyo("run", "--postgres", schema_ready))
    assert code == 2 and "--brokers" in line and "DENPYO_BROKERS" in line


def test_a_wrong_password_is_told_and_not_repeated(run_denpyo, own_postgres, new_database, initialise):
    server = own_postgres()
    database = initialise(new_database(server))
    database.execute("create role secretive login password 'right'")
    hba = server.datadir / "pg_hba.conf"
    hba.write_text("host all secretive 127.0.0.1/32 scram-sha-256\n" + hba.read_text())
    database.execute("select pg_reload_conf()")
    conninfo = server.conninfo(database.name, user="secretive", password="wr0ng-w0rd")
    code, line = refusal(run_denpyo("run", "--postgres", conninfo, "--brokers", NOWHERE))
    assert code == 3 and 'password authentication failed for user "secretive"' in line and "option postgres" in line
    assert "wr0ng" not in line


def test_a_role_that_may_only_read_is_told_which_grant_it_needs_and_goes_on_when_it_has_it(outbox, user, kafka, relay):
    database, topic = outbox.database, kafka.create_topic()
    running = relay(database.server.conninfo(database.name, user=user))
    line = running.wait_log("permission denied")
    assert " error " in line and f"GRANT outbox_relay TO {user}" in line, line
    outbox.generate(topic, 10)
    outbox.sql(f"grant outbox_relay to {user}")
    outbox.wait_states({"dispatched": 10}, topic)
    outbox.sql(f"revoke outbox_relay from {user}")
    outbox.generate(topic, 10, first=11)
    running.wait_log("permission denied", after=running.lines.index(line) + 1)
    outbox.sql(f"grant outbox_relay to {user}")
    outbox.wait_states({"dispatched": 20}, topic)
    running.wait_log("database is back")
    assert running.log_text().count("permission denied") == 2, running.log_text()
    assert running.stop() == 0
