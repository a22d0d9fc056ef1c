"""Two relays on one outbox: one leads, the other waits and says so, and whoever lost the lease writes nothing more."""

import signal
from contextlib import closing

import pytest

from lib.wait import wait_until
from load import Load, insert, wait_dispatched, wait_settled
from mock import PRODUCE, MockKafka
from verify import verify

SLACK_S = 5  # of a busy machine; what was measured is printed
LONG_LEASE = ("--lease-ms", 60_000)
SHORT_LEASE = ("--lease-ms", 2500)
NOT_ENOUGH_REPLICAS = 19  # the client keeps the messages and tries again
AUDIT = """
create table audit (at timestamptz, who text, what text, epoch bigint, holder uuid);
create function note() returns trigger language plpgsql security definer as $$
begin
    insert into audit select clock_timestamp(), session_user, tg_op || ' ' || tg_table_name, r.epoch, r.holder from outbox.relay r;
    return null;
end $$;
"""
EPOCHS = "select epoch, min(id), max(id) from outbox.batch group by 1 order by 2"


@pytest.fixture
def topics(kafka):
    return [kafka.create_topic(partitions=4), kafka.create_topic()]


def leader_and_standby(relay, database, *flags):
    first = relay(database, *flags)
    first.wait_log("leading")
    second = relay(database, *flags)
    second.wait_log("standby: another relay leads")
    return first, second


@pytest.fixture
def audited(schema_ready):
    """A database that notes, in table audit, every row the relays write, and when and by which role."""
    schema_ready.execute(AUDIT)
    for name in ("relay", "batch", "settlement", "settlement_topic", "parked"):
        schema_ready.execute(f"create trigger note after insert or update or delete on outbox.{name}"
                             " for each row execute function note()")
    return schema_ready


@pytest.fixture
def as_role(audited):
    """The conninfo of a login role of its own that may do what a relay does: as_role(name)."""
    roles = []

    def create(name):
        roles.append(f"{name}_{audited.name}")
        audited.execute(f"create role {roles[-1]} login in role outbox_relay")
        return audited.server.conninfo(audited.name, user=roles[-1])

    yield create
    for role in roles:
        audited.execute(f"drop role {role}")


def assert_epochs_in_order(database):
    """Batches of one term lie together, and terms follow each other: nobody claimed after another had taken over."""
    terms = database.rows(EPOCHS)
    assert [epoch for epoch, _, _ in terms] == sorted(epoch for epoch, _, _ in terms)
    assert all(later[1] == earlier[2] + 1 for earlier, later in zip(terms, terms[1:])), terms
    return terms


def test_the_second_relay_waits_names_the_leader_and_sends_nothing(schema_ready, kafka, topics, relay):
    first, second = leader_and_standby(relay, schema_ready, *LONG_LEASE)
    assert f"pid {first.pid}" in second.wait_log("standby: another relay leads")
    insert(schema_ready, topics[0], 50)
    wait_settled(schema_ready)
    assert second.stop() == 0
    assert "leading" not in second.log_text()
    assert schema_ready.rows("select epoch, holder is not null from outbox.relay") == [(1, True)]
    assert verify(schema_ready, kafka, topics).exactly_once()


def test_case_12_a_clean_stop_hands_over_long_before_the_lease_would_end(schema_ready, audited, kafka, topics, relay):
    first, second = leader_and_standby(relay, schema_ready, *LONG_LEASE)
    with Load(schema_ready, topics):
        wait_dispatched(schema_ready, 500)
        assert first.stop() == 0
        second.wait_log("leading", 10)
        wait_dispatched(schema_ready, 500)
    wait_settled(schema_ready)
    verdict = verify(schema_ready, kafka, topics)
    print(verdict)
    assert verdict.exactly_once(), verdict
    assert_epochs_in_order(schema_ready)
    released, taken = audited.rows("select (select min(at) from audit where what = 'UPDATE relay' and holder is null), acquired_at"
                                   " from outbox.relay")[0]
    gap_s = (taken - released).total_seconds()
    print(f"taken over {gap_s:.3f} s after it was given back")
    assert 0 < gap_s < 1 + SLACK_S


def test_case_12_after_a_crash_the_standby_leads_when_the_lease_has_ended(schema_ready, kafka, topics, relay):
    """Ended by the database's clock: not before, and soon after."""
    first, second = leader_and_standby(relay, schema_ready, *SHORT_LEASE)
    with Load(schema_ready, topics):
        wait_dispatched(schema_ready, 500)
        first.kill()
        expiry = schema_ready.value("select lease_expires_at from outbox.relay where epoch = 1")
        second.wait_log("leading", 20)
        taken = schema_ready.value("select acquired_at from outbox.relay where epoch = 2")
        wait_dispatched(schema_ready, 500)
    wait_settled(schema_ready)
    gap_s = (taken - expiry).total_seconds()
    print(f"taken over {gap_s:.3f} s after the lease had ended")
    assert 0 < gap_s < 1 + SLACK_S
    verdict = verify(schema_ready, kafka, topics)
    print(verdict)
    assert verdict.at_least_once(), verdict
    assert_epochs_in_order(schema_ready)


def test_case_11_a_leader_that_was_frozen_writes_nothing_steps_down_and_can_lead_again(
        schema_ready, kafka, topics, relay):
    """Three rounds under load: freeze the leader for longer than its lease, thaw it, let it take over again."""
    first, second = leader_and_standby(relay, schema_ready, *SHORT_LEASE)
    leader, other = first, second
    with Load(schema_ready, topics):
        for _ in range(3):
            seen, other_seen = len(leader.lines), len(other.lines)
            wait_dispatched(schema_ready, 300)
            leader.signal(signal.SIGSTOP)
            other.wait_log("leading", 20, after=other_seen)
            wait_dispatched(schema_ready, 300)
            leader.signal(signal.SIGCONT)
            leader.wait_log("another relay took over: stepping down", 20, after=seen)
            leader.wait_log("standby: another relay leads", 20, after=seen)
            wait_dispatched(schema_ready, 300)
            leader, other = other, leader
        other_seen = len(other.lines)
        assert leader.stop() == 0
        other.wait_log("leading", 20, after=other_seen)
        wait_dispatched(schema_ready, 300)
    wait_settled(schema_ready)
    terms = assert_epochs_in_order(schema_ready)
    verdict = verify(schema_ready, kafka, topics)
    print(terms, verdict, sep="\n")
    assert verdict.at_least_once(), verdict
    assert len(terms) >= 5
    assert schema_ready.value("select epoch from outbox.leader") == terms[-1][0] == 5, "the epoch counts the leaders"


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_case_11_a_thawed_leader_writes_nothing_and_sends_no_more_than_its_client_had(audited, as_role, relay, delivery):
    """
    It is frozen with thousands of messages claimed, of which its client has one group a partition, unanswered. The standby looks
    them up, finds none and sends all. Thawed, the old one's client sends what it has: copies, with the same ids, and nothing else.
    (The mock cluster has no fencing: in exactly-once mode the copies' transaction is never committed all the same.)
    """
    group, partitions = 50, 2
    flags = [*SHORT_LEASE, "--kafka", f"batch.num.messages={group}"]
    if delivery == "exactly_once":
        flags += ["--delivery", delivery, "--transactional-id", audited.name]
    with closing(MockKafka()) as broker:
        topic = broker.create_topic(partitions=partitions)
        first = relay(as_role("first"), *flags, brokers=broker.bootstrap)
        first.wait_log("leading")
        insert(audited, topic, 10)
        wait_settled(audited)
        second = relay(as_role("second"), *flags, brokers=broker.bootstrap)
        second.wait_log("standby")
        broker.answer(PRODUCE, *[NOT_ENOUGH_REPLICAS] * 10000)
        audited.execute("insert into outbox.message (topic, key, payload) select %s, 'k' || n, 'p' from generate_series(1, 3000) n",
                        (topic,))
        wait_until(lambda: audited.value("select count(*) from outbox.status where state = 'requesting'") == 3000, 30, "the claims")
        first.signal(signal.SIGSTOP)
        broker.answer_well(PRODUCE)
        second.wait_log("leading", 30)
        wait_settled(audited)
        stopped = audited.value("select acquired_at from outbox.relay")
        first.signal(signal.SIGCONT)
        first.wait_log("another relay took over: stepping down")
        first.wait_log("standby: another relay leads")
        insert(audited, topic, 10, key="later")
        wait_settled(audited)
        assert first.stop() == 0
        verdict = verify(audited, broker, [topic])
    print(verdict, len(verdict.doubled), sep="\n")
    assert verdict.truthful() and not (verdict.missing or verdict.unreceipted), verdict
    assert len(verdict.doubled) <= group * partitions and all(copies == 2 for copies in verdict.doubled.values())
    claimed = {row for (row,) in audited.rows("select m.id from outbox.message m where m.id > 10 and m.key <> 'later'")}
    assert set(verdict.doubled) <= claimed
    written = audited.rows("select who, what, count(*) from audit where at > %s group by 1, 2 order by 1, 2", (stopped,))
    assert written and all(who.startswith("second") for who, *_ in written), written


@pytest.mark.parametrize("table", ["batch", "settlement", "parked"])
def test_renewals_do_not_wait_behind_batches_receipts_and_sweeps(schema_ready, kafka, topics, relay, table):
    """Somebody locks a table of the ledger for several leases: what writes there waits, is cancelled, and goes on; the lease stays."""
    first, second = leader_and_standby(relay, schema_ready, *SHORT_LEASE, "--sweep-interval-ms", 50)
    with Load(schema_ready, topics, writers=2):
        wait_dispatched(schema_ready, 100)
        with schema_ready.connect() as person, person.transaction():
            person.execute(f"lock table outbox.{table} in access exclusive mode")
            until = person.execute("select clock_timestamp() + interval '10 s'").fetchone()[0]

            def is_over():
                now, epoch, expires = person.execute("select clock_timestamp(), epoch, lease_expires_at from outbox.relay").fetchone()
                assert epoch == 1 and expires > now, "the lease was lost"
                return now > until

            wait_until(is_over, 60, "the end of the lock")
        wait_dispatched(schema_ready, 100)
    wait_settled(schema_ready)
    assert "leading" not in second.log_text() and "stepping down" not in first.log_text()
    assert verify(schema_ready, kafka, topics).exactly_once()


def test_a_second_name_is_refused_because_it_would_send_everything_again(schema_ready, kafka, relay, run_denpyo):
    topic = kafka.create_topic()
    insert(schema_ready, topic, 5)
    running = relay(schema_ready)
    wait_settled(schema_ready)
    ended = run_denpyo("run", "--postgres", schema_ready.conninfo, "--brokers", kafka.bootstrap, "--relay", "other")
    assert ended.returncode == 2
    assert 'relayed under the name "default"' in ended.stderr and "--relay default" in ended.stderr
    assert running.stop() == 0
    assert schema_ready.value("select count(*) from outbox.relay") == 1
    assert verify(schema_ready, kafka, [topic]).exactly_once()
