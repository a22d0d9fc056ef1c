"""Stops and crashes at random moments: a clean stop doubles nothing, and no end of the process loses or reorders anything."""

import random
import signal

import pytest

from lib.wait import wait_until
from load import Load, dispatched, insert, wait_dispatched, wait_settled
from verify import verify

ROUNDS = 6
REQUESTING = "select count(*) from outbox.status where state = 'requesting'"
GAVE_UP = "no acknowledgment before the deadline"


@pytest.fixture
def topics(kafka):
    return [kafka.create_topic(partitions=4), kafka.create_topic()]


@pytest.fixture
def frozen_kafka(own_kafka):
    """A broker of this test's own, which is thawed before it is stopped."""
    broker = own_kafka()
    yield broker
    broker.thaw()


def relay_until_random_moment(relay, database, rng, *flags):
    """A relay that has come some way: at the very start, or after so many receipts."""
    running = relay(database, *flags)
    running.wait_log("leading")
    more = rng.choice([0, 1, rng.randrange(300), rng.randrange(1500)])
    wait_dispatched(database, more)
    return running


@pytest.mark.parametrize("flags", [(), ("--batch-rows", 20, "--inflight-messages", 200)], ids=["large", "small"])
def test_case_10_stopping_at_random_moments_loses_and_doubles_nothing(schema_ready, kafka, topics, relay, flags):
    rng = random.Random(10)
    with Load(schema_ready, topics):
        for _ in range(ROUNDS):
            running = relay_until_random_moment(relay, schema_ready, rng, *flags)
            running.signal(rng.choice([signal.SIGTERM, signal.SIGINT]))
            assert running.wait() == 0
            assert GAVE_UP not in running.log_text()
            assert schema_ready.value("select count(*) from outbox.open_batch") == 0, "a clean stop leaves no batch open"
    relay(schema_ready)
    wait_settled(schema_ready)
    verdict = verify(schema_ready, kafka, topics)
    print(verdict)
    assert verdict.exactly_once(), verdict


@pytest.mark.parametrize("flags", [(), ("--batch-rows", 20, "--inflight-messages", 200)], ids=["large", "small"])
def test_case_13_killing_at_random_moments_loses_and_reorders_nothing(schema_ready, kafka, topics, relay, flags):
    """The lease of the one that died has to run out each time: a short one."""
    rng = random.Random(13)
    flags = (*flags, "--lease-ms", 1000)
    with Load(schema_ready, topics):
        for _ in range(ROUNDS):
            relay_until_random_moment(relay, schema_ready, rng, *flags).kill()
            assert (verdict := verify(schema_ready, kafka, topics)).truthful(), verdict
    relay(schema_ready, *flags)
    wait_settled(schema_ready)
    verdict = verify(schema_ready, kafka, topics)
    print(verdict)
    assert verdict.at_least_once(), verdict


def wait_claim(outbox):
    """Of rows after this moment: what was claimed before the broker froze may have been acknowledged."""
    since = (outbox.value("select clock_timestamp()"),)
    wait_until(lambda: outbox.value("select count(*) from outbox.open_batch where claimed_at > %s", since) > 0, 30, "a claim")


def test_a_second_signal_ends_it_at_once(schema_ready, frozen_kafka, relay):
    topic = frozen_kafka.create_topic()
    insert(schema_ready, topic, 5)
    running = relay(schema_ready, "--shutdown-flush-ms", 3_600_000, brokers=frozen_kafka.bootstrap)
    wait_settled(schema_ready)
    frozen_kafka.freeze()
    insert(schema_ready, topic, 5)
    wait_until(lambda: schema_ready.value(REQUESTING) == 5, 30, "the claim")
    running.signal(signal.SIGTERM)
    running.wait_log("stopping: waiting for acknowledgments")
    running.signal(signal.SIGINT)
    assert running.wait() == 128 + signal.SIGINT


def test_stopping_while_the_broker_is_frozen_records_what_was_acknowledged(schema_ready, frozen_kafka, relay):
    """The deadline ends the wait. What has a receipt by then never comes again; the rest says that nobody knows."""
    topics = [frozen_kafka.create_topic(partitions=4), frozen_kafka.create_topic()]
    running = relay(schema_ready, "--shutdown-flush-ms", 700, "--batch-rows", 100, brokers=frozen_kafka.bootstrap)
    with Load(schema_ready, topics, rows=100, pause_s=0.01):
        wait_dispatched(schema_ready, 3000)
        frozen_kafka.freeze()
        wait_claim(schema_ready)
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
    running.wait_log(GAVE_UP)
    assert schema_ready.value("select count(*) from outbox.open_batch") == 0, "all that is known is recorded"
    receipted = dispatched(schema_ready)
    unknown = {row for (row,) in schema_ready.rows("select id from outbox.status where state = 'requesting'")}
    frozen_kafka.thaw()
    assert unknown
    halfway = verify(schema_ready, frozen_kafka, topics)
    assert halfway.truthful(), halfway
    assert not unknown & (set(range(max(unknown) + 1)) - set(halfway.unreceipted)), "a receipt for what is requesting"
    relay(schema_ready, brokers=frozen_kafka.bootstrap)
    wait_settled(schema_ready)
    verdict = verify(schema_ready, frozen_kafka, topics)
    print(f"{receipted} receipts, {len(unknown)} unknown at the stop", verdict, sep="\n")
    assert verdict.at_least_once(), verdict
    assert set(verdict.doubled) <= unknown, "what was acknowledged was sent again"


def test_stopping_without_a_database_ends_and_loses_nothing(own_postgres, new_database, initialise, frozen_kafka, relay):
    """What is on its way then can be recorded by nobody: the next start finds its batches open."""
    server, topics = own_postgres(), [frozen_kafka.create_topic(partitions=4)]
    outbox = initialise(new_database(server))
    flags = ["--shutdown-flush-ms", 500, "--lease-ms", 1000]
    running = relay(outbox, *flags, brokers=frozen_kafka.bootstrap)
    with Load(outbox, topics, patient=True):
        wait_dispatched(outbox, 1000)
        frozen_kafka.freeze()
        wait_claim(outbox)
        server.stop("immediate")
        running.wait_log("database trouble, trying again")
        running.signal(signal.SIGTERM)
        running.wait()
        server.start()
        assert outbox.value("select count(*) from outbox.open_batch") > 0
        frozen_kafka.thaw()
        relay(outbox, *flags, brokers=frozen_kafka.bootstrap)
        wait_dispatched(outbox, 500)
    wait_settled(outbox)
    verdict = verify(outbox, frozen_kafka, topics)
    print(verdict)
    assert verdict.at_least_once(), verdict


@pytest.mark.measures
def test_case_16_recovery_reads_what_is_open_not_what_is_settled(schema_ready, frozen_kafka, relay):
    """Among the open pages is one that begins with a straggler from before everything that is settled."""
    topic, flags = frozen_kafka.create_topic(partitions=4), ["--lease-ms", 1000]
    schema_ready.execute("alter table outbox.message set (autovacuum_enabled = off)")
    with schema_ready.connect() as late:
        late.execute("begin")
        late.execute("insert into outbox.message (topic, key, payload) values (%s, 'late', 'x')", (topic,))
        insert(schema_ready, topic, 50_000)
        running = relay(schema_ready, *flags, brokers=frozen_kafka.bootstrap)
        wait_settled(schema_ready)
        frozen_kafka.freeze()
        late.execute("commit")
        insert(schema_ready, topic, 20)
        wait_until(lambda: schema_ready.value(REQUESTING) == 21, 30, "the claim")
        running.kill()
    wait_until(lambda: not backends(schema_ready), 30, "the end of the killed relay's connections")
    before = index_entries_read(schema_ready)
    frozen_kafka.thaw()
    again = relay(schema_ready, *flags, brokers=frozen_kafka.bootstrap)
    again.wait_log("open batches go on")
    wait_until(lambda: dispatched(schema_ready) == 50_021, 60, "the last receipt")
    assert again.stop() == 0
    wait_until(lambda: not backends(schema_ready), 30, "the end of the relay's connections")
    cost = index_entries_read(schema_ready) - before
    print(f"{cost} index entries read")
    assert cost < 5000


def backends(database):
    return database.rows("select pid from pg_stat_activity where application_name like 'denpyo%'")


def index_entries_read(database):
    """Of the outbox's indexes; a backend's share is there once it has ended."""
    return database.value("select sum(idx_tup_read)::bigint from pg_stat_user_indexes where relname = 'message'")
