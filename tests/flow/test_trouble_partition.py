"""One dead partition keeps no batch open: the others' receipts do not wait, and its own messages go in order when it is back."""

import pytest
from load import Load, wait_dispatched, wait_settled
from verify import verify

from lib.cluster import SecondBroker, make_transactions_topic
from lib.kafka import Kafka
from lib.wait import wait_until

CLOSE_MS = 1500


@pytest.fixture
def close_soon():
    return ["--batch-close-ms", CLOSE_MS, "--metadata-refresh-ms", "1000"]


def wait_parted(outbox, topic, deadline_s=60):
    """Waits until messages are parked for a partition's sake: their batches have closed without them."""
    query = "select count(*) > 0 from outbox.parked where topic = %s and scope = 'partition'"
    wait_until(lambda: outbox.sql(query, topic)[0][0], deadline_s, f"parked rows of {topic}")


@pytest.fixture(scope="module")
def brokers(folders):
    """Two brokers: the second one may die."""
    first = Kafka(folders.new("kafka"))
    make_transactions_topic(first)
    second = SecondBroker(folders.new("kafka"), first)
    yield first, second
    second.kill()
    first.kill()


@pytest.fixture
def topic(brokers, request):
    """A topic of four partitions, the last of which is the second broker's; dead topics are put there whole by some tests."""
    _, second = brokers
    second.start()
    return second.place_topic(request.node.name.replace("[", "-").replace("]", ""), [1, 1, 1, 2])


def die(second, topic, how="kill"):
    getattr(second, how)()
    second.wait_led(topic, 3)


def revive(second, topic, how="kill"):
    second.thaw() if how == "freeze" else second.start()
    second.wait_led(topic, 4)


def test_receipts_of_the_others_do_not_wait(outbox, brokers, topic, relay, close_soon):
    """A batch with rows for a dead partition and for others: it closes, SQL tells the truth, and nothing is sent twice."""
    first, second = brokers
    running = relay(outbox.database, *close_soon, brokers=first.bootstrap)
    outbox.generate(topic, 40, partition="n % 4")
    outbox.wait_states({"dispatched": 40})
    die(second, topic)
    outbox.generate(topic, 400, first=41, partition="n % 4")
    outbox.wait_dispatched(340, topic)
    wait_parted(outbox, topic)
    outbox.generate(topic, 400, first=441, partition="n % 4")  # what comes later waits behind
    wait_until(lambda: outbox.states() == {"dispatched": 640, "requesting": 100, "held": 100}, 60, "the rest, parked")
    row, *_ = outbox.sql("select * from outbox.status where state = 'requesting' order by id")
    assert row.error_code == "NO_ACKNOWLEDGMENT" and f"partition 3 of topic {topic}" in row.error and row.attempts == 0
    assert row.first_error_at is not None
    held = outbox.sql("select distinct waits_for_id, held_by from outbox.status where state = 'held'")
    assert held == [(row.id, "partition")]
    assert "a partition acknowledges nothing" in running.log_text()
    revive(second, topic)
    outbox.wait_states({"dispatched": 840})
    assert outbox.sql("select count(*) as n from outbox.parked")[0].n == 0
    verdict = verify(outbox.database, first, [topic])
    assert verdict.exactly_once(), verdict
    assert running.stop() == 0


@pytest.mark.parametrize("how", ["kill", "freeze"])
def test_load_goes_on_around_a_dead_partition(outbox, brokers, topic, relay, close_soon, how):
    first, second = brokers
    running = relay(outbox.database, *close_soon, brokers=first.bootstrap)
    with Load(outbox.database, [topic], writers=3):
        wait_dispatched(outbox.database, 300)
        die(second, topic, how)
        wait_parted(outbox, topic)
        for _ in range(3):
            wait_dispatched(outbox.database, 300)
        revive(second, topic, how)
        wait_until(lambda: outbox.sql("select count(*) = 0 as n from outbox.parked")[0].n, 120, "nothing parked any more")
        wait_dispatched(outbox.database, 300)
    wait_settled(outbox.database)
    verdict = verify(outbox.database, first, [topic])
    print(verdict)
    assert verdict.exactly_once(), verdict
    assert outbox.sql("select id, state from outbox.parked limit 3") == []
    assert running.stop() == 0


def test_exactly_once_waits_for_the_partition(outbox, brokers, topic, relay, close_soon):
    """The broker cannot end a transaction without all its partitions: everything waits, and goes on when it is back."""
    first, second = brokers
    running = relay(outbox.database, *close_soon, "--delivery", "exactly_once", "--transactional-id", topic,
                    brokers=first.bootstrap)
    with Load(outbox.database, [topic], writers=3):
        wait_dispatched(outbox.database, 300)
        die(second, topic)
        wait_until(lambda: outbox.states(topic).get("requesting", 0) > 100, 60, "messages on their way")
        revive(second, topic)
        wait_dispatched(outbox.database, 300, 120)
    wait_settled(outbox.database)
    verdict = verify(outbox.database, first, [topic], isolation="read_committed")
    print(verdict)
    assert verdict.exactly_once(), verdict
    assert running.stop() == 0


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_the_relay_ends_while_a_partition_is_dead(outbox, brokers, topic, relay, close_soon, end):
    """What was on the wire is looked up by the next relay, also what reached the log after the first one had gone."""
    first, second = brokers
    old = relay(outbox.database, *close_soon, brokers=first.bootstrap)
    with Load(outbox.database, [topic], writers=2):
        wait_dispatched(outbox.database, 200)
        die(second, topic)
        wait_parted(outbox, topic)
        wait_dispatched(outbox.database, 200)
        getattr(old, end)()
        new = relay(outbox.database, *close_soon, brokers=first.bootstrap)
        new.wait_log("partitions without a leader cannot be read", 90)
        wait_dispatched(outbox.database, 200, 90)
        assert outbox.sql("select count(*) > 0 as n from outbox.status where error_code = 'NO_LEADER'")[0].n
        revive(second, topic)
        wait_until(lambda: outbox.sql("select count(*) = 0 as n from outbox.parked")[0].n, 120, "nothing parked any more")
    wait_settled(outbox.database)
    verdict = verify(outbox.database, first, [topic])
    print(verdict)
    assert verdict.at_least_once(), verdict
    assert new.stop() == 0
