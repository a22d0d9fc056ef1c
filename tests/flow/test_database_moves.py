"""The outbox wakes up elsewhere: in another PostgreSQL cluster, at an earlier point in time, on a promoted standby, before another Kafka."""

import shutil
import subprocess
import time

import pytest

from lib.bouncer import as_owner
from lib.wait import wait_until
from load import Load, dispatched, insert, wait_dispatched, wait_settled
from test_engine_servers import primary, standby, wait_replayed  # noqa: F401 (fixtures)
from verify import verify

MOVED = "the database lives in another PostgreSQL cluster now"
NEW_TIMELINE = "the database has a new timeline"


@pytest.fixture
def topics(kafka):
    return [kafka.create_topic(partitions=4), kafka.create_topic()]


@pytest.fixture
def outbox(primary, new_database, initialise):  # noqa: F811
    """A database on a server of this test's own."""
    return initialise(new_database(primary))


# --- another PostgreSQL cluster ---


@pytest.fixture
def restored(own_postgres, new_database, initialise, tmp_path):
    """Restores a dump of a database into a new cluster: restored(database), the copy."""

    def restore(source):
        dump, target = tmp_path / "dump", new_database(own_postgres())
        for program, *words in (("pg_dump", "-Fc", "-f", dump, "-d", source),
                                ("pg_restore", "--no-owner", "--no-privileges", "--exit-on-error", "-d", target, dump)):
            done = subprocess.run([f"{source.server.bindir}/{program}", *map(str, words)], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        return initialise(target)

    return restore


def test_a_dump_restored_into_another_cluster_goes_on(outbox, restored, run_denpyo, kafka, topics, relay):
    """
    Rows were settled, in flight, parked and waiting when the dump was made. Transaction ids of the new cluster pass through
    those of the old one meanwhile, and the writers go on with the same keys.
    """
    running = relay(outbox, "--batch-rows", 50)
    insert(outbox, "not.there", 10)
    with Load(outbox, topics):
        wait_dispatched(outbox, 2000)
        running.kill()
        insert(outbox, topics[0], 6000)
    copy = restored(outbox)
    newest = copy.value("select max(xid)::text::bigint from outbox.message")
    assert copy.value("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint") < newest, "nothing is to be passed through"
    with copy.connect() as operator:
        operator.execute("update outbox.relay set lease_expires_at = now()")
    with relay(copy, "--batch-rows", 50) as running:
        with Load(copy, topics):
            assert " error " in running.wait_log(MOVED)
            found = running.wait_log("the outbox's past is closed")
            wait_until(lambda: copy.value("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint") > newest, 60,
                       "the passage of the old cluster's transaction ids")
        floor = copy.value("select floor_id from outbox.relay")
        assert int(found.rsplit("without_receipt=")[1].split()[0]) >= 6000 and floor >= 8000
        wait_until(lambda: copy.value("select count(*) from outbox.status where topic <> 'not.there' and state <> 'dispatched'")
                   == 0, 60, "the last receipt")
        assert running.stop() == 0
    verdict = verify(copy, kafka, topics)
    assert verdict.at_least_once(), verdict
    assert dict(copy.rows("select state, count(*)::int from outbox.status where topic = 'not.there' group by 1")) == {
        "failed": 1, "held": 9}
    assert copy.value("select count(*) from outbox.settlement s, unnest(s.ids) r (id) where r.id > %s", (floor,)) > 0
    with relay(copy) as running:
        running.wait_log("leading")
        insert(copy, topics[0], 10)
        wait_until(lambda: copy.value("select count(*) from outbox.status where topic <> 'not.there' and state <> 'dispatched'")
                   == 0, 60, "the last receipt")
        assert MOVED not in running.log_text(), "once is enough"
    sweep = run_denpyo("check", "--postgres", copy, "--brokers", kafka.bootstrap, "--sweep").stdout
    assert "what is settled has a receipt or a reason" in sweep


def test_writers_that_were_open_at_the_move_are_waited_for(schema_ready, restored, run_denpyo, kafka, topics, relay):
    """An id below the floor that committed after it was set would be in no window."""
    with relay(schema_ready) as running:
        insert(schema_ready, topics[0], 10)
        wait_settled(schema_ready)
        assert running.stop() == 0
    copy = restored(schema_ready)
    role = f"relay_{copy.name}"
    copy.execute(f"create role {role} login in role outbox_relay")
    with copy.connect() as late:
        late.execute("begin")
        late.execute("insert into outbox.message (topic, key, payload) values (%s, 'late', 'v')", (topics[0],))
        insert(copy, topics[0], 10)
        running = relay(copy.server.conninfo(copy.name, user=role))
        running.wait_log("lock timeout")
        swept = run_denpyo("check", "--postgres", copy, "--brokers", kafka.bootstrap, "--sweep").stdout
        assert "came from another PostgreSQL cluster" in swept
        late.execute("commit")
    running.wait_log("the outbox's past is closed")
    wait_settled(copy)
    assert copy.value("select floor_id from outbox.relay") == 21
    assert verify(copy, kafka, topics).exactly_once()


def test_where_the_identity_may_not_be_read_it_is_said(schema_ready, kafka, topics, relay):
    role = f"relay_{schema_ready.name}"
    schema_ready.execute(f"create role {role} login in role outbox_relay")
    try:
        schema_ready.execute("revoke execute on function pg_control_system() from public")
        with relay(schema_ready.server.conninfo(schema_ready.name, user=role)) as running:
            assert "grant execute on pg_control_system()" in running.wait_log("the server's identity may not be read")
            insert(schema_ready, topics[0], 10)
            wait_settled(schema_ready)
            assert running.stop() == 0
        assert schema_ready.value("select system_identifier from outbox.relay") is None
        schema_ready.execute("grant execute on function pg_control_system() to public")
        with relay(schema_ready.server.conninfo(schema_ready.name, user=role)) as running:
            running.wait_log("leading")
            insert(schema_ready, topics[0], 10)
            wait_settled(schema_ready)
            assert running.stop() == 0
        recorded, real = schema_ready.rows(
            "select r.system_identifier, s.system_identifier from outbox.relay r, pg_control_system() s")[0]
        assert recorded == real and MOVED not in running.log_text()
    finally:
        schema_ready.execute("grant execute on function pg_control_system() to public")
        schema_ready.execute(f"drop role {role}")


# --- another point in time ---


def test_a_restored_earlier_point_in_time_is_told_of_and_gone_on_from(primary, outbox, kafka, topics, relay):  # noqa: F811
    """What the database forgot as sent goes out again with its id; what it forgot altogether stays in the topic."""
    with relay(outbox) as running:
        insert(outbox, topics[0], 10)
        wait_settled(outbox)
        assert running.stop() == 0
    again = insert(outbox, topics[0], 10, key="again")
    primary.stop("fast")
    copy = primary.folder / "copy"
    subprocess.run(["cp", "-a", primary.datadir, copy], check=True)
    primary.start()
    running = relay(outbox, "--lease-ms", 3_600_000)
    lost = insert(outbox, topics[0], 100, key="lost")
    wait_settled(outbox)
    primary.stop("fast")
    running.wait_log("database trouble, trying again")
    shutil.rmtree(primary.datadir)
    copy.rename(primary.datadir)
    signal = primary.datadir / "recovery.signal"
    subprocess.run(as_owner(primary.datadir, "touch", signal), check=True)
    primary.settings["restore_command"] = "false"
    primary.start()
    wait_until(lambda: outbox.value("select not pg_is_in_recovery()"), 30, "the end of the recovery")
    outbox.execute("update outbox.relay set lease_expires_at = now()")
    assert "timeline=2 before=1" in running.wait_log(NEW_TIMELINE, 60)
    new = insert(outbox, topics[0], 100, key="new")
    wait_until(lambda: dispatched(outbox) == 120, 60, "all receipts")
    assert set(new) & set(lost), "no id came again"
    verdict = verify(outbox, kafka, topics)
    assert not (verdict.missing or verdict.unreceipted or verdict.false_receipts or verdict.disordered), verdict
    assert len(verdict.invented) == 100 and sorted(verdict.doubled) == again, verdict


def test_case_03_the_relay_follows_a_failover_that_lost_the_last_second(primary, standby, outbox, kafka, topics, relay):  # noqa: F811
    """Ids and transaction ids of what was lost come again; the messages are others, with message ids of their own."""
    hosts = f"host=127.0.0.1,127.0.0.1 port={primary.port},{standby.port} user=postgres dbname={outbox.name}"
    running = relay(hosts)
    insert(outbox, topics[0], 10)
    wait_settled(outbox)
    wait_replayed(primary, standby)
    with standby.connect(outbox.name) as replica:
        replica.execute("alter system set primary_conninfo = ''")
        replica.execute("select pg_reload_conf()")
        wait_until(lambda: replica.execute("select count(*) from pg_stat_wal_receiver").fetchone()[0] == 0, 30, "the cut")
        lost = insert(outbox, topics[0], 200)
        wait_settled(outbox)
        primary.stop("immediate")
        replica.execute("select pg_promote()")
        assert "timeline=2 before=1" in running.wait_log(NEW_TIMELINE, 60)
        running.wait_log("the database lost what it had confirmed")
        outbox.server = standby
        new = insert(outbox, topics[0], 200)
        wait_until(lambda: dispatched(outbox) == 210, 60, "all receipts")
    assert set(new) & set(lost), "no id came again"
    verdict = verify(outbox, kafka, topics)
    assert not (verdict.missing or verdict.unreceipted or verdict.false_receipts or verdict.doubled), verdict
    assert len(verdict.invented) == 200, "what was lost had been sent"
    outbox.server = primary


def test_case_24_a_primary_that_stands_still_is_given_up_for_its_successor(primary, standby, outbox, kafka, topics, relay):  # noqa: F811
    """
    Its connections stay open and look alive: nothing but a deadline of the relay's own ends the wait. Each of the relay's
    three connections then waits in vain for an answer of the first host, all at the same time.
    """
    hosts = f"host=127.0.0.1,127.0.0.1 port={primary.port},{standby.port} user=postgres dbname={outbox.name} connect_timeout=8"
    running = relay(hosts, "--lease-ms", 2000)
    insert(outbox, topics[0], 10)
    wait_settled(outbox)
    wait_replayed(primary, standby)
    primary.freeze()
    try:
        with standby.connect(outbox.name) as replica:
            replica.execute("select pg_promote()")
        outbox.server = standby
        insert(outbox, topics[0], 10)
        assert "no answer for longer than the lease" in running.wait_log("database trouble, trying again")
        given_up = time.monotonic()
        wait_until(lambda: dispatched(outbox) == 20, 60, "receipts on the new primary")
        assert time.monotonic() - given_up < 20, "the time-out was waited for more than once"
        assert len(kafka.read_all(topics[0])) == 20
    finally:
        primary.kill()
        outbox.server = primary


# --- another Kafka ---


def test_another_kafka_cluster_is_refused_until_it_is_confirmed(schema_ready, kafka, kafka_autocreate, relay,
                                                                run_denpyo):
    topic = kafka.create_topic()
    there = kafka_autocreate.create_topic()
    with relay(schema_ready) as running:
        insert(schema_ready, topic, 10)
        wait_settled(schema_ready)
        assert running.stop() == 0
    before = schema_ready.value("select cluster_id from outbox.relay")
    insert(schema_ready, there, 10)
    for confirmed in ([], ["--accept-cluster-id", before]):
        with relay(schema_ready, *confirmed, brokers=kafka_autocreate.bootstrap) as running:
            assert running.wait() == 1
            refusal = running.lines[-1]
            assert f"until now this outbox was sent to cluster {before}" in refusal
            assert schema_ready.value("select holder is null from outbox.relay"), "the lease was given back"
    assert kafka_autocreate.read_all(there) == []
    looked = run_denpyo("check", "--postgres", schema_ready.conninfo, "--brokers", kafka_autocreate.bootstrap)
    assert looked.returncode == 1 and f"this outbox was sent to cluster {before}" in looked.stdout
    now = refusal.rsplit("--accept-cluster-id ")[1].strip()
    for flags in (["--accept-cluster-id", now], []):
        with relay(schema_ready, *flags, brokers=kafka_autocreate.bootstrap) as running:
            running.wait_log("leading")
            wait_settled(schema_ready)
            assert ("another Kafka cluster is accepted" in running.log_text()) == bool(flags)
            assert running.stop() == 0
        assert schema_ready.value("select cluster_id from outbox.relay") == now
    assert len(kafka_autocreate.read_all(there)) == 10


# --- no schema any more ---


def test_a_dropped_schema_is_named_and_a_new_one_taken_up(schema_ready, initialise, kafka, topics, relay):
    running = relay(schema_ready)
    insert(schema_ready, topics[0], 10)
    wait_settled(schema_ready)
    schema_ready.execute("drop schema outbox cascade")
    assert "run denpyo init" in running.wait_log("database trouble, trying again")
    initialise(schema_ready)
    running.wait_log("database is back")
    insert(schema_ready, topics[1], 10)
    wait_settled(schema_ready)
    assert len(kafka.read_all(topics[1])) == 10
    assert running.stop() == 0
