"""A person decides about messages in trouble, by command or by SQL, while the relay runs: each decision counts, once."""

import threading
from contextlib import closing

import psycopg
import pytest
from ledger import Ledger
from mock import PRODUCE, MockKafka
from verify import verify

from lib.wait import wait_until

LIMIT = ["--kafka", "message.max.bytes=2000"]
LARGE = "x" * 3000


def ids(records):
    return [record.message_id for record in records]


def decide(run_denpyo, outbox, *words):
    return run_denpyo(*words, "--postgres", outbox.database)


# --- on_reject ---


def test_on_reject_continue_lets_the_key_go_on_and_a_retry_sends_the_message_late(outbox, kafka, relay, run_denpyo):
    topic = kafka.create_topic()
    running = relay(outbox.database, *LIMIT)
    large = outbox.insert(topic, key="a", payload=LARGE)
    after = outbox.insert(topic, key="a", payload="after")
    outbox.wait_states({"rejected": 1, "dispatched": 1})
    running.stop()
    relay(outbox.database)  # with the usual limit
    done = decide(run_denpyo, outbox, "retry", large.message_id)
    assert (done.returncode, done.stdout) == (0, f"Message {large.message_id} was rejected: it is tried again now.\n")
    outbox.wait_states({"dispatched": 2})
    assert ids(kafka.read_all(topic)) == [str(after.message_id), str(large.message_id)]


@pytest.mark.parametrize("restart", [False, True])
def test_on_reject_hold_keeps_the_key_until_it_is_skipped(outbox, kafka, relay, run_denpyo, restart):
    topic = kafka.create_topic()
    running = relay(outbox.database, *LIMIT, "--on-reject", "hold")
    large = outbox.insert(topic, key="a", payload=LARGE)
    outbox.generate(topic, 50, key="case when n % 2 = 0 then 'a' else 'b' end")
    also_large = outbox.insert(topic, key="a", payload=LARGE)
    last = outbox.insert(topic, key="a", payload="last")
    outbox.wait_states({"rejected": 1, "held": 27, "dispatched": 25})
    assert {row.waits_for_id for row in outbox.sql("select * from outbox.status where state = 'held'")} == {large.id}
    if restart:
        running.stop()
        running = relay(outbox.database, *LIMIT, "--on-reject", "hold")
        outbox.insert(topic, key="a", payload="later still")
        outbox.wait_states({"rejected": 1, "held": 28, "dispatched": 25})
    done = decide(run_denpyo, outbox, "skip", large.message_id, "--reason", "superseded by order 7")
    assert done.returncode == 0, done.stderr
    skipped = outbox.wait_row(large.id, "skipped")
    assert "superseded by order 7" in skipped.error and "MSG_SIZE_TOO_LARGE" == skipped.error_code
    outbox.wait_states({"skipped": 1, "rejected": 1, "held": 2 if restart else 1, "dispatched": 50})
    assert outbox.row(last.id).waits_for_id == also_large.id
    outbox.sql("select outbox.skip(%s, 'that one, too')", also_large.message_id)
    outbox.wait_states({"skipped": 2, "dispatched": 52 if restart else 51})
    verdict = verify(outbox.database, kafka, [topic])
    assert not (verdict.doubled or verdict.disordered or verdict.invented or verdict.false_receipts), verdict
    assert verdict.missing == [large.id, also_large.id]
    assert outbox.sql("select count(*) from outbox.parked where next_attempt_at is not null")[0].count == 0


def test_on_reject_hold_sends_a_retried_message_before_its_followers(outbox, kafka, relay, run_denpyo):
    topic = kafka.create_topic()
    running = relay(outbox.database, *LIMIT, "--on-reject", "hold")
    outbox.insert(topic, key="a", payload=LARGE)
    outbox.generate(topic, 20, key="'a'")
    outbox.wait_states({"rejected": 1, "held": 20})
    running.stop()
    running = relay(outbox.database, "--on-reject", "hold")
    running.wait_log("leading")
    outbox.sql("select outbox.retry(message_id) from outbox.parked where state = 'rejected'")
    outbox.wait_states({"dispatched": 21})
    verdict = verify(outbox.database, kafka, [topic])
    assert verdict.exactly_once(), verdict


# --- what may not be decided ---


def test_a_decision_that_cannot_be_is_refused_with_the_reason(outbox, kafka, relay, run_denpyo):
    topic = kafka.create_topic()
    relay(outbox.database)
    sent = outbox.insert(topic, payload="x")
    outbox.wait_states({"dispatched": 1})
    for words, code, reason in [
        (["retry", sent.message_id], 1, f"message {sent.message_id} is dispatched; this is for messages that are"),
        (["skip", sent.message_id, "--reason", "x"], 1, "is dispatched"),
        (["retry", "00000000-0000-0000-0000-000000000000"], 1, "there is no message 00000000"),
        (["skip", sent.message_id], 2, "--reason TEXT"),
        (["skip", sent.id, "--reason", "x"], 1, "for messages that are rejected, failed or delayed\n"),
        (["retry", sent.id], 1, "for messages that are rejected or failed\n"),
        (["retry", 4711], 1, "there is no message 4711 in this outbox"),
        (["skip", 4711, "--reason", "x"], 1, "there is no message 4711 in this outbox"),
    ]:
        done = decide(run_denpyo, outbox, *words)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert reason in done.stderr and done.stderr.count("\n") == 1 and "PostgreSQL" not in done.stderr
    with pytest.raises(psycopg.errors.RaiseException, match="read committed"):
        with outbox.database.connect() as connection, connection.transaction():
            connection.execute("set transaction isolation level repeatable read")
            connection.execute("select outbox.retry(%s)", [sent.message_id])


def test_a_message_that_fails_for_its_topic_can_be_skipped_and_the_next_takes_its_place(outbox, kafka, relay):
    """Also the hold of a whole topic is released, and found again by the next row; the topic's return sends the rest."""
    relay(outbox.database)
    outbox.generate("not-there-yet", 5, key="'a'")
    outbox.wait_states({"failed": 1, "held": 4})
    first, second, *_ = outbox.sql("select id, message_id from outbox.message order by id")
    wait_until(lambda: _skipped(outbox, first.message_id), 20, "a moment in which it is not being tried")
    outbox.wait_states({"skipped": 1, "failed": 1, "held": 3})
    assert outbox.row(second.id).state == "failed"
    kafka.create_topic("not-there-yet")
    outbox.wait_states({"skipped": 1, "dispatched": 4})


def _skipped(outbox, message_id):
    try:
        return outbox.sql("select outbox.skip(%s, 'gone')", message_id)
    except psycopg.errors.RaiseException as refused:
        assert "being tried right now" in str(refused)
        return False


def test_a_number_decides_as_its_message_id_does_and_a_held_message_names_the_one_to_decide(
        outbox, kafka, relay, run_denpyo):
    topic = kafka.create_topic()
    relay(outbox.database, *LIMIT, "--on-reject", "hold")
    large = outbox.insert(topic, key="a", payload=LARGE)
    held = outbox.insert(topic, key="a", payload="after")
    outbox.wait_states({"rejected": 1, "held": 1})
    for words in (["retry", held.id], ["skip", held.message_id, "--reason", "x"]):
        done = decide(run_denpyo, outbox, *words)
        assert done.returncode == 1 and f"decide about message {large.message_id}" in done.stderr
    done = decide(run_denpyo, outbox, "skip", large.id, "--reason", "x")
    assert (done.returncode, done.stdout.split(":")[0]) == (0, f"Message {large.message_id} was rejected")
    outbox.wait_states({"skipped": 1, "dispatched": 1})


@pytest.mark.parametrize("policy", ["continue", "hold"])
def test_who_waits_for_a_skipped_message_goes_before_later_ones_also_after_a_crash(outbox, relay, policy):
    """
    The ledger as a crash can leave it: an open batch has taken a message that was just skipped, and the last of its key, which had waited
    for its topic's trouble. The one between them waits for the skipped one and is to go before the last.
    """
    with closing(MockKafka()) as broker:
        topic = broker.create_topic()
        gone, skipped, between, last = (outbox.insert(topic, key="k", payload=text) for text in ("gone", "skipped", "between", "last"))
        ledger = Ledger(outbox.connection)
        ledger.settle(ledger.claim(10), [gone.id], {skipped.id: "rejected", between.id: "held", last.id: "held"})
        outbox.sql("update outbox.parked set waits_for_id = %s where id = %s", skipped.id, between.id)
        outbox.sql("update outbox.parked set waits_for_id = %s, scope = 'topic' where id = %s", gone.id, last.id)
        outbox.sql("select outbox.skip(%s, 'a test')", skipped.message_id)
        ledger.retry([skipped.id, last.id])
        relay(outbox.database, "--on-reject", policy, brokers=broker.bootstrap)
        outbox.wait_states({"dispatched": 3, "skipped": 1})
        assert [record.value for record in broker.read_all(topic)] == [b"between", b"last"]


def test_a_message_that_is_in_trouble_again_before_all_that_waited_for_it_went_does_not_wait_for_itself(outbox, relay):
    """
    It held its topic, was rejected, and a person tries it again while those that waited are still being let go, one by one. Then
    its topic is in trouble once more.
    """
    with closing(MockKafka()) as broker:
        topic = broker.create_topic()
        first, *others = (outbox.insert(topic, key=f"k{n}", payload="x") for n in range(6))
        ledger = Ledger(outbox.connection)
        ledger.settle(ledger.claim(10), [], {first.id: "rejected"} | {row.id: "held" for row in others})
        outbox.sql("update outbox.parked set waits_for_id = %s, scope = 'topic' where state = 'held'", first.id)
        with outbox.database.connect() as person, person.transaction():
            person.execute("lock table outbox.batch in share row exclusive mode")  # a claim of the first that waited waits
            relay(outbox.database, "--batch-rows", 1, "--retry-initial-ms", 50, brokers=broker.bootstrap)
            wait_until(lambda: outbox.sql("select 1 from pg_stat_activity where application_name = 'denpyo claim'"
                                          " and datname = current_database() and wait_event_type = 'Lock'"), 30, "the claim")
            outbox.sql("select outbox.retry(%s)", first.message_id)
            broker.answer(PRODUCE, 0, 29)
        outbox.wait_states({"dispatched": 6})


def test_a_message_that_two_crashes_left_waiting_for_itself_goes(outbox, relay):
    """
    Its topic's trouble was undone by a crash when an earlier one was on record as waiting for it; it then came behind that one, and
    waited for its release, which another crash made it forget.
    """
    with closing(MockKafka()) as broker:
        topic = broker.create_topic()
        earlier, itself = (outbox.insert(topic, key="k", payload=text) for text in ("earlier", "itself"))
        ledger = Ledger(outbox.connection)
        ledger.settle(ledger.claim(10), [], {earlier.id: "held", itself.id: "held"})
        outbox.sql("update outbox.parked set waits_for_id = %s, scope = 'topic'", itself.id)
        relay(outbox.database, brokers=broker.bootstrap)
        outbox.wait_states({"dispatched": 2}, deadline_s=20)
        assert [record.value for record in broker.read_all(topic)] == [b"earlier", b"itself"]


# --- races ---


def test_decisions_race_with_the_relay_and_each_message_has_one_end(outbox, kafka, relay):
    """Rows that fail and are due again and again are skipped meanwhile: what was skipped is not in the topic, all else is once."""
    topic, count = "appears-later", 60
    relay(outbox.database, "--retry-initial-ms", 5, "--retry-max-ms", 10)
    outbox.generate(topic, count, key="null")
    outbox.wait_states({"failed": 1, "held": count - 1})
    stop, skipped = threading.Event(), set()

    def skip_what_fails():
        with outbox.database.connect() as connection:
            while not stop.is_set():
                for (message_id,) in connection.execute("select message_id from outbox.parked where state = 'failed'").fetchall():
                    try:
                        connection.execute("select outbox.skip(%s, 'raced')", [message_id])
                        skipped.add(message_id)
                    except psycopg.errors.RaiseException:
                        pass

    thread = threading.Thread(target=skip_what_fails)
    thread.start()
    try:
        wait_until(lambda: len(skipped) >= 5, 60, "five skipped messages")
        kafka.create_topic(topic)
        outbox.wait_resolved()
    finally:
        stop.set()
        thread.join()
    states = {row.message_id: row.state for row in outbox.sql("select message_id, state from outbox.status")}
    assert {message_id for message_id, state in states.items() if state == "skipped"} == skipped
    arrived = ids(kafka.read_all(topic))
    assert sorted(arrived) == sorted(str(message_id) for message_id in states if message_id not in skipped)


def test_a_person_who_takes_long_stops_nothing_but_that_message(outbox, kafka, relay):
    topic = kafka.create_topic()
    running = relay(outbox.database, *LIMIT)
    large = outbox.insert(topic, key="a", payload=LARGE)
    outbox.wait_states({"rejected": 1})
    with outbox.database.connect() as person, person.transaction():
        person.execute("select outbox.retry(%s)", [large.message_id])
        person.execute("select outbox.skip(%s, 'thought again')", [large.message_id])
        outbox.generate(topic, 100)
        outbox.insert("nowhere", key="a", payload="x")
        outbox.wait_states({"dispatched": 100, "rejected": 1}, topic)
        outbox.wait_states({"failed": 1}, "nowhere")
    outbox.wait_row(large.id, "skipped")
    assert "database trouble" not in running.log_text()


def test_who_may_decide(outbox, kafka, relay):
    """The relay's role may; a role that only reads may when it is granted one function, and nothing else."""
    topic = kafka.create_topic()
    relay(outbox.database, *LIMIT)
    rows = [outbox.insert(topic, payload=LARGE) for _ in range(2)]
    outbox.wait_states({"rejected": 2})
    with outbox.database.connect() as connection:
        connection.execute("set role outbox_reader")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("select outbox.skip(%s, 'x')", [rows[0].message_id])
        connection.execute("reset role")
        connection.execute("set role outbox_relay")
        connection.execute("select outbox.skip(%s, 'x')", [rows[0].message_id])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("select outbox.parked_to_decide(%s, array['rejected'])", [rows[1].message_id])
    outbox.wait_row(rows[0].id, "skipped")
