"""What happens to a dead partition's messages meanwhile: relays come and go, topics and partitions change, answers are lost."""

from contextlib import closing

import pytest
from confluent_kafka.admin import NewPartitions
from outbox import Outbox
from test_trouble_partition import brokers, close_soon, die, revive, topic, wait_parted  # noqa: F401 (fixtures)
from verify import verify

from lib.kafka import results
from lib.wait import wait_until


def assert_each_once(outbox, kafka, topic):  # noqa: F811
    assert outbox.sql("select id, state from outbox.parked limit 3") == []
    verdict = verify(outbox.database, kafka, [topic])
    assert verdict.exactly_once(), verdict


def test_later_messages_wait_for_the_lowest_of_those_that_cannot_be_looked_up(outbox, brokers, topic, relay, close_soon):  # noqa: F811
    """The relay died with the partition: its successor parks what was on the wire, later ones wait, and all of it is found again."""
    first, second = brokers
    outbox.sql("alter table outbox.message alter message_id set default gen_random_uuid()")  # in no order
    old = relay(outbox.database, "--batch-close-ms", 60000, brokers=first.bootstrap)
    outbox.generate(topic, 40, partition="n % 4")
    outbox.wait_states({"dispatched": 40})
    die(second, topic)
    outbox.generate(topic, 40, first=41, partition="3")
    outbox.wait_states({"dispatched": 40, "requesting": 40})
    old.kill()
    new = relay(outbox.database, *close_soon, brokers=first.bootstrap)
    new.wait_log("partitions without a leader cannot be read", 90)
    outbox.generate(topic, 40, first=81, partition="3")
    outbox.wait_states({"dispatched": 40, "requesting": 40, "held": 40})
    revive(second, topic)
    outbox.wait_states({"dispatched": 120})
    assert "vanished" not in new.log_text()
    assert_each_once(outbox, first, topic)
    assert new.stop() == 0


@pytest.fixture
def own_outbox(own_postgres, new_database, initialise):
    """On a server whose commits can be made to wait."""
    with closing(Outbox(initialise(new_database(own_postgres())))) as opened:
        yield opened


COMMITTING = "select pid from pg_stat_activity where wait_event = 'SyncRep' and application_name like '%%' || %s"


def set_standbys(outbox, names):  # noqa: F811
    """With a standby that is not there, commits are on disk and never confirmed."""
    outbox.sql(f"alter system set synchronous_standby_names = '{names}'")
    outbox.sql("select pg_reload_conf()")


def lose_answer(outbox, running, connection):  # noqa: F811
    """Ends the connection whose commit waits for the standby that is not there; what comes later is confirmed."""
    wait_until(lambda: outbox.sql(COMMITTING, connection), 60, f"a commit of the connection {connection}")
    outbox.sql(f"select pg_terminate_backend(pid) from ({COMMITTING}) waiting", connection)
    running.wait_log("database trouble, trying again")
    set_standbys(outbox, "")


def test_reports_count_although_the_answer_to_the_claim_is_lost(own_outbox, brokers, topic, relay, close_soon):  # noqa: F811
    """The claim that takes overdue messages back is committed, and its connection ends: what the broker said is not forgotten."""
    first, second = brokers
    running = relay(own_outbox.database, *close_soon, "--lease-ms", 60000, brokers=first.bootstrap)
    own_outbox.sql("set synchronous_commit = local")
    own_outbox.generate(topic, 40, partition="n % 4")
    own_outbox.wait_states({"dispatched": 40})
    die(second, topic)
    own_outbox.generate(topic, 40, first=41, partition="3")
    own_outbox.wait_states({"dispatched": 40, "requesting": 40})
    wait_parted(own_outbox, topic)
    set_standbys(own_outbox, "nobody")
    revive(second, topic)
    lose_answer(own_outbox, running, "claim")
    own_outbox.wait_states({"dispatched": 80})
    assert_each_once(own_outbox, first, topic)
    assert running.stop() == 0


def test_the_answer_to_the_settlement_without_overdue_messages_is_lost(own_outbox, brokers, topic, relay):  # noqa: F811
    """What is on the wire has left its batch on record, and memory learns of it from the ledger; the reports still count."""
    first, second = brokers
    running = relay(own_outbox.database, "--batch-close-ms", 4000, "--metadata-refresh-ms", 1000, "--lease-ms", 60000,
                    brokers=first.bootstrap)
    own_outbox.sql("set synchronous_commit = local")
    own_outbox.generate(topic, 40, partition="n % 4")
    own_outbox.wait_states({"dispatched": 40})
    die(second, topic)
    own_outbox.generate(topic, 40, first=41, partition="3")
    own_outbox.wait_states({"dispatched": 40, "requesting": 40})
    set_standbys(own_outbox, "nobody")
    lose_answer(own_outbox, running, "settle")
    own_outbox.generate(topic, 40, first=81, partition="3")
    own_outbox.wait_states({"dispatched": 40, "requesting": 40, "held": 40})
    revive(second, topic)
    own_outbox.wait_states({"dispatched": 120})
    assert_each_once(own_outbox, first, topic)
    assert "looked up" not in running.log_text()
    assert running.stop() == 0


def test_a_topic_vanishes_while_one_of_its_partitions_is_dead(outbox, brokers, topic, relay, close_soon):  # noqa: F811
    """Some messages wait for the partition, later ones for the topic, all for the same one: each comes back from where it waited."""
    first, second = brokers
    running = relay(outbox.database, *close_soon, brokers=first.bootstrap)
    outbox.generate(topic, 40, partition="n % 4")
    outbox.wait_states({"dispatched": 40})
    die(second, topic)
    outbox.generate(topic, 40, first=41, partition="3")
    outbox.wait_states({"dispatched": 40, "requesting": 40})
    outbox.generate(topic, 40, first=81, partition="3")
    outbox.wait_states({"dispatched": 40, "requesting": 40, "held": 40})
    first.delete_topic(topic)
    wait_until(lambda: outbox.sql("select true from outbox.parked where scope = 'topic'"), 60, "the topic's trouble")
    outbox.generate(topic, 40, first=121, partition="n % 4")
    wait_until(lambda: outbox.states().get("held") == 119, 60, "all waiting for one")
    second.start()
    second.place_topic(topic, [1, 1, 1, 2])
    outbox.wait_states({"dispatched": 160})
    assert "vanished from the database" not in running.log_text()
    values = [int(record.value[1:]) for record in first.read_all(topic) if record.partition == 3]
    assert values == sorted(values) and len(values) == 90
    assert running.stop() == 0


def test_partitions_are_added_while_one_is_dead(outbox, brokers, topic, relay, close_soon):  # noqa: F811
    """The old number stays in force until the dead one is back, and everything for the others goes on."""
    first, second = brokers
    running = relay(outbox.database, *close_soon, brokers=first.bootstrap)
    outbox.generate(topic, 40, partition="n % 4")
    outbox.wait_states({"dispatched": 40})
    die(second, topic)
    outbox.generate(topic, 40, first=41, partition="3")
    outbox.wait_states({"dispatched": 40, "requesting": 40})
    wait_parted(outbox, topic)
    results(first.admin.create_partitions([NewPartitions(topic, 6, [[1], [1]])]))
    second.wait_led(topic, 5)
    seen = outbox.insert(topic, key="new", payload="p", partition=5)  # fails, or waits, until its partition is known to be there
    wait_until(lambda: outbox.row(seen.id).state in ("failed", "held"), 60, "a message for a new partition that waits")
    outbox.generate(topic, 400, first=81, partition="n % 4")
    outbox.wait_dispatched(340, topic)
    second.start()
    second.wait_led(topic, 6)
    outbox.wait_states({"dispatched": 481})
    running.wait_log("the number of partitions changed")
    assert_each_once(outbox, first, topic)
    assert running.stop() == 0


def test_all_kinds_of_messages_meet_a_dead_partition_and_another_relay(outbox, brokers, topic, relay, close_soon):  # noqa: F811
    """One that is rejected and holds its key, ones that are not due yet, ones without a key: each finds its end in its order."""
    first, second = brokers
    flags = [*close_soon, "--on-reject", "hold", "--kafka", "message.max.bytes=2000"]
    old = relay(outbox.database, *flags, brokers=first.bootstrap)
    outbox.generate(topic, 40, partition="n % 4")
    outbox.wait_states({"dispatched": 40})
    die(second, topic)
    mixed = "case when n = 50 then repeat('x', 5000) else 'p' || n end"
    outbox.generate(topic, 100, first=41, partition="3", payload=mixed)
    outbox.sql("insert into outbox.message (topic, key, payload, partition, available_at)"
               " select %s, 'later ' || n, 'p', 3, now() + n * interval '1 second' from generate_series(1, 5) n", topic)
    outbox.generate(topic, 100, first=141, key="null::text")
    wait_parted(outbox, topic)
    outbox.wait_dispatched(100, topic)
    assert old.stop() == 0
    new = relay(outbox.database, *flags, brokers=first.bootstrap)
    new.wait_log("partitions without a leader cannot be read", 90)
    outbox.generate(topic, 100, first=241, partition="3")
    revive(second, topic)
    behind = len(range(60, 141, 10)) + len(range(250, 341, 10))  # of key k0, after the one that is rejected
    outbox.wait_states({"dispatched": 344 - behind, "rejected": 1, "held": behind}, deadline_s=120)
    (rejected,) = outbox.sql("select id, message_id from outbox.parked where state = 'rejected'")
    outbox.sql("select outbox.skip(%s, 'too large')", rejected.message_id)
    outbox.wait_states({"dispatched": 344, "skipped": 1}, deadline_s=120)
    verdict = verify(outbox.database, first, [topic])
    assert verdict.missing == [rejected.id] == verdict.unreceipted and not verdict.disordered and not verdict.doubled, verdict
    assert new.stop() == 0


def test_messages_that_cannot_be_looked_up_do_not_take_turns(outbox, brokers, topic, relay, close_soon):  # noqa: F811
    """Some were parked by one relay, others are in a batch that the next one left open: for both no leader is in sight."""
    first, second = brokers
    other = second.place_topic(f"{topic}-other", [2])
    never = ["--batch-close-ms", 60000]
    running = relay(outbox.database, *never, brokers=first.bootstrap)
    outbox.generate(topic, 40, partition="n % 4")
    outbox.generate(other, 10)
    outbox.wait_states({"dispatched": 50})
    die(second, topic)
    outbox.generate(topic, 10, first=41, partition="3")
    outbox.wait_states({"dispatched": 50, "requesting": 10})
    running.kill()
    running = relay(outbox.database, *never, brokers=first.bootstrap)
    running.wait_log("partitions without a leader cannot be read", 90)
    outbox.sql("insert into outbox.message (topic, key, payload, partition) select t, 'k', 'p' || n, p"
               " from generate_series(1, 10) n, (values (%s, 3), (%s, 0)) topics (t, p)", topic, other)
    outbox.wait_states({"dispatched": 50, "requesting": 30})
    running.kill()
    running = relay(outbox.database, *close_soon, brokers=first.bootstrap)
    running.wait_log("partitions without a leader cannot be read", 90)
    outbox.generate(topic, 100, first=51, partition="n % 3")
    outbox.wait_states({"dispatched": 150, "requesting": 30})
    assert running.log_text().count("parked messages may have arrived") <= 2
    second.start()
    outbox.wait_states({"dispatched": 180}, deadline_s=120)
    verdict = verify(outbox.database, first, [topic, other])
    assert verdict.at_least_once(), verdict
    assert running.stop() == 0
