"""Exactly-once mode: whatever dies, a read_committed consumer sees each message once, in order, and receipts are true."""

import random
import signal

import pytest

from lib.wait import wait_until
from load import Load, insert, wait_dispatched, wait_settled
from outbox import Outbox
from verify import verify

ROUNDS = 5


@pytest.fixture
def flags(database):
    """Each test's outbox has a transactional id of its own."""
    return ["--delivery", "exactly_once", "--transactional-id", f"test-{database.name}", "--lease-ms", 1500]


@pytest.fixture
def topics(kafka):
    return [kafka.create_topic(partitions=4), kafka.create_topic()]


class Committed:
    """A broker as a read_committed consumer sees it."""

    def __init__(self, broker):
        self.broker = broker

    def __getattr__(self, name):
        return getattr(self.broker, name)

    def read_all(self, topic):
        return self.broker.read_all(topic, isolation="read_committed")


def committed_verdict(outbox, broker, topics):
    """What read_committed consumers see; they see the last commit a moment after the relay heard of it."""
    verdict = lambda: verify(outbox, Committed(broker), topics)
    wait_until(lambda: not verdict().missing, 30, "the last transaction's messages")
    return verdict()


def assert_exactly_once(outbox, broker, topics):
    verdict = committed_verdict(outbox, broker, topics)
    print(verdict)
    assert verdict.exactly_once(), verdict


def test_without_a_transactional_id_it_does_not_start(schema_ready, kafka, run_denpyo):
    ended = run_denpyo("run", "--postgres", schema_ready.conninfo, "--brokers", kafka.bootstrap, "--delivery",
                       "exactly_once")
    assert ended.returncode == 2
    assert "--transactional-id" in ended.stderr


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_ends_at_random_moments_double_nothing(schema_ready, kafka, topics, relay, flags, end):
    rng = random.Random(end)
    with Load(schema_ready, topics):
        for _ in range(ROUNDS):
            running = relay(schema_ready, *flags)
            running.wait_log("leading")
            wait_dispatched(schema_ready, rng.choice([0, 1, rng.randrange(300), rng.randrange(1500)]))
            running.signal(end)
            running.wait()
    relay(schema_ready, *flags)
    wait_settled(schema_ready)
    assert_exactly_once(schema_ready, kafka, topics)


def test_a_frozen_leader_that_thaws_adds_nothing(schema_ready, kafka, topics, relay, flags):
    """The successor fences it: what sat in the frozen one's buffers never becomes visible."""
    with Load(schema_ready, topics):
        first = relay(schema_ready, *flags)
        wait_dispatched(schema_ready, 200)
        second = relay(schema_ready, *flags)
        second.wait_log("standby")
        first.signal(signal.SIGSTOP)
        second.wait_log("leading")
        wait_dispatched(schema_ready, 500)
        first.signal(signal.SIGCONT)
        first.wait_log("stepping down")
        wait_dispatched(schema_ready, 500)
    wait_settled(schema_ready)
    assert_exactly_once(schema_ready, kafka, topics)


def test_a_refused_message_aborts_and_the_rest_goes_without_it(schema_ready, kafka, relay, flags):
    """The broker refuses one in a hundred for its size: each is rejected alone, its batch mates arrive once."""
    topic = kafka.create_topic(partitions=2, config={"max.message.bytes": 20000, "compression.type": "producer"})
    outbox = Outbox(schema_ready)
    outbox.generate(topic, 400, payload="case when n % 100 = 50 then (select string_agg(md5(n::text || i), '')"
                                        " from generate_series(1, 2000) i) else 'p' || n end")
    relay(schema_ready, *flags, "--kafka", "compression.type=none")
    outbox.wait_resolved()
    assert outbox.states(topic) == {"dispatched": 396, "rejected": 4}
    verdict = verify(schema_ready, Committed(kafka), [topic])
    assert not verdict.doubled and not verdict.disordered, verdict
    outbox.close()


def test_sets_that_are_refused_as_a_whole_do_not_stall_what_is_sent_beside_them(schema_ready, kafka, relay, flags):
    """What the client takes back for a retry after its transaction has failed is sent no more: it would time out after a minute."""
    narrow, wide = kafka.create_topic(config={"max.message.bytes": 2000}), kafka.create_topic(partitions=16)
    outbox = Outbox(schema_ready)
    relay(schema_ready, *flags, "--kafka", "compression.type=none")
    with Load(schema_ready, [wide], rows=60):
        wait_dispatched(schema_ready, 100)
        for number in range(1, 2 * ROUNDS):
            outbox.generate(narrow, 40, payload="repeat('x', 200)")
            outbox.wait_dispatched(40 * number, narrow, 25)
    outbox.wait_resolved(60)
    assert_exactly_once(schema_ready, kafka, [narrow, wide])
    outbox.close()


def test_partitions_that_are_added_while_a_transaction_is_open_do_not_stall_it(schema_ready, kafka, relay, flags):
    """Messages by the new number wait until the older ones are closed, which they are after the commit: it must not wait for these."""
    topic = kafka.create_topic()
    insert(schema_ready, topic, 400_000, key=None)
    running = relay(schema_ready, *flags, "--metadata-refresh-ms", 100, "--batch-rows", 1000)
    for total in range(2, 5):
        wait_dispatched(schema_ready, 20_000)
        kafka.add_partitions(topic, total)
    wait_settled(schema_ready, 60)
    assert running.log_text().count("the number of partitions changed") >= 1
    assert_exactly_once(schema_ready, kafka, [topic])


def test_the_broker_restarts_in_the_middle(schema_ready, own_kafka, relay, flags):
    broker = own_kafka()
    topics = [broker.create_topic(partitions=4)]
    running = relay(schema_ready, *flags, brokers=broker.bootstrap)
    with Load(schema_ready, topics):
        wait_dispatched(schema_ready, 300)
        broker.kill()
        running.wait_log("no broker can be reached")
        broker.start()
        wait_dispatched(schema_ready, 300, deadline_s=120)
    wait_settled(schema_ready)
    assert_exactly_once(schema_ready, broker, topics)


def test_the_database_restarts_in_the_middle(own_postgres, new_database, initialise, kafka, relay, flags):
    server, topics = own_postgres(), [kafka.create_topic(partitions=4)]
    outbox = initialise(new_database(server))
    running = relay(outbox, *flags)
    with Load(outbox, topics, patient=True):
        wait_dispatched(outbox, 300)
        server.stop("immediate")
        running.wait_log("database trouble")
        server.start()
        running.wait_log("database is back")
        wait_dispatched(outbox, 300)
    wait_settled(outbox)
    assert_exactly_once(outbox, kafka, topics)


def test_delayed_and_failed_rows_go_through_transactions_too(schema_ready, kafka, relay, flags):
    outbox, topic = Outbox(schema_ready), kafka.create_topic()
    later = f"{topic}-later"
    running = relay(schema_ready, *flags, "--retry-initial-ms", 100)
    held = [outbox.insert(later, key="k", payload=f"p{i}").id for i in range(3)]
    outbox.insert(topic, key="k", payload="now", available_at="2020-01-01")
    outbox.wait_row(held[0], "failed")
    assert outbox.row(held[2]).waits_for_id == held[0]
    kafka.create_topic(later)
    outbox.wait_resolved()
    assert [record.value for record in kafka.read_all(later, "read_committed")] == [b"p0", b"p1", b"p2"]
    assert running.stop() == 0
    outbox.close()


def test_an_idle_relay_opens_no_transaction(schema_ready, kafka, relay, flags):
    """A stop with nothing on its way is clean, and what comes later goes out once."""
    topic = kafka.create_topic()
    insert(schema_ready, topic, 5)
    running = relay(schema_ready, *flags)
    wait_settled(schema_ready)
    assert running.stop() == 0
    insert(schema_ready, topic, 5)
    relay(schema_ready, *flags)
    wait_until(lambda: schema_ready.value("select count(*) from outbox.receipt") == 10, 60, "ten receipts")
    assert_exactly_once(schema_ready, kafka, [topic])
