"""Every row of `denpyo help outcomes`, produced: by a real broker where one gives it on demand, by librdkafka's mock cluster elsewhere."""

import re
from contextlib import closing

import pytest
from mock import INIT_PRODUCER_ID, PRODUCE, MockKafka
from test_outcome_access import Denial, guarded  # noqa: F401 (a fixture)
from verify import verify

from lib.devserver import ROOT
from lib.wait import wait_until

EXACTLY_ONCE = ["--delivery", "exactly_once", "--transactional-id"]

# What neither broker gives on demand is fed to the code that decides: row -> test in tests/unit/test_outcome.c.
UNIT = {
    "maybe persisted any": "what_the_broker_may_have_is_never_failed",
    "not persisted -192": "what_the_client_gives_back_for_its_own_reasons_is_nobodys_attempt",
    "not persisted -152": "what_the_client_gives_back_for_its_own_reasons_is_nobodys_attempt",
    "not persisted -151": "what_the_client_gives_back_for_its_own_reasons_is_nobodys_attempt",
    "not persisted -150": "a_producer_that_failed_with_messages_in_it_is_made_anew",
    "not persisted -144": "a_producer_that_failed_with_messages_in_it_is_made_anew",
    "not persisted 45": "a_producer_that_failed_with_messages_in_it_is_made_anew",
    "not persisted 3": "a_topic_that_goes_with_messages_queued_for_it_is_in_trouble_as_a_whole",
    "not persisted -188": "a_topic_that_goes_with_messages_queued_for_it_is_in_trouble_as_a_whole",
    "not persisted -197": "a_topic_that_goes_with_messages_queued_for_it_is_in_trouble_as_a_whole",
    "refused at once 10": "what_is_larger_than_the_client_sends_is_rejected_at_once",
    "refused at once any": "what_the_client_refuses_for_any_other_reason_fails_and_holds_its_key",
    "refused at once -150": "a_producer_that_has_failed_refuses_at_once_and_is_made_anew",
    "refused at once -172": "a_transaction_that_has_failed_refuses_at_once_and_is_aborted",
}
CLAIMS = {}  # row -> test in this file


def produces(*rows):
    """The test makes these rows of the table happen; `start` sees to it that the relay's log says so."""

    def mark(test):
        for row in rows:
            CLAIMS.setdefault(row, test.__name__)
        test.rows = rows
        return test

    return mark


def table(run_denpyo):
    """row, as "not persisted 87" -> (name of the code or "any", what it becomes, its sentence)."""
    lines = run_denpyo("help", "outcomes").stdout.splitlines()[1:]
    rows = {}
    for line, sentence in zip(lines[::2], lines[1::2]):
        report, code, becomes = line[:23].strip(), line[23:66].strip(), line[66:].strip()
        number, _, name = code.partition(" ")
        rows[f"{report} {number}"] = (name or "any", becomes, sentence.strip())
    return rows


EVENTS = {"maybe persisted": "refused", "not persisted": "refused", "refused at once": "refused at once",
          "look-up of the topic": "look-up refused", "fatal for the producer": "the producer cannot go on"}


def is_said(log, row, name, sentence):
    report = row.rpartition(" ")[0]
    code = "" if name == "any" else f"code={name} "
    return any(f" {EVENTS[report]} " in line and f' {code}' in line and f'meaning="{sentence}"' in line
               for line in log.splitlines())


@pytest.fixture
def mock():
    with closing(MockKafka()) as broker:
        yield broker


@pytest.fixture
def start(outbox, relay, request, run_denpyo):
    """Starts the relay on a broker: start(broker, *flags). In the end its log must hold the rows that the test claims."""
    started = []

    def on(broker, *flags):
        running = relay(outbox.database, "--log-level", "debug", *flags, brokers=broker.bootstrap)
        running.wait_log("leading")
        started.append(running)
        return running

    yield on
    rows, log = table(run_denpyo), "\n".join(running.log_text() for running in started)
    for row in request.function.rows:
        if row not in WITHOUT_A_LINE:
            assert is_said(log, row, rows[row][0], rows[row][2]), f"not produced: {row}"


WITHOUT_A_LINE = {"acknowledged any", "refused at once -184"}  # they happen all the time, and their tests see what follows


def test_every_row_is_claimed_by_a_test_that_exists(run_denpyo):
    rows = table(run_denpyo)
    assert len(rows) > 30
    assert set(CLAIMS) | set(UNIT) == set(rows)
    assert not set(CLAIMS) & set(UNIT), "a broker gives it"
    source = (ROOT / "tests/unit/test_outcome.c").read_text()
    assert all(f"Test(outcome, {name})" in source for name in UNIT.values())


def test_the_readme_has_the_table_as_the_program_prints_it(run_denpyo):
    assert run_denpyo("help", "outcomes").stdout in (ROOT / "README.md").read_text()


def assert_arrived(outbox, broker, topic, but=()):
    verdict = verify(outbox.database, broker, [topic])
    assert verdict.missing == list(but) and verdict.truthful() and not verdict.doubled, verdict


# --- nobody's fault ---


@produces("acknowledged any", "refused at once -184")
def test_a_full_queue_is_back_pressure(outbox, kafka, start):
    """The client takes ten messages at a time and gets two thousand: nothing fails."""
    topic = kafka.create_topic(partitions=2)
    start(kafka, "--kafka", "queue.buffering.max.messages=10")
    outbox.generate(topic, 2000)
    outbox.wait_states({"dispatched": 2000})
    assert verify(outbox.database, kafka, [topic]).exactly_once()


@pytest.mark.parametrize("code", [10, 32, 42, 87])
@produces()
def test_the_error_of_a_whole_set_blames_nobody_until_one_was_sent_alone(outbox, mock, start, code):
    topic = mock.create_topic()
    start(mock)
    mock.answer(PRODUCE, *[code] * 3)
    outbox.generate(topic, 40)
    outbox.wait_states({"dispatched": 40})
    assert outbox.sql("select * from outbox.parked") == []
    assert_arrived(outbox, mock, topic)


@produces("not persisted 48", "not persisted 49", "not persisted 59")
def test_a_transaction_that_the_broker_ended_is_no_messages_attempt(outbox, mock, start):
    """One attempt would be the last."""
    topic = mock.create_topic()
    start(mock, *EXACTLY_ONCE, "ended", "--retry-max-attempts", 1)
    for number, code in enumerate([48, 49, 59], 1):
        mock.answer(PRODUCE, code, code)
        outbox.insert(topic, key="k", payload="x")
        outbox.wait_states({"dispatched": number})
    assert outbox.sql("select * from outbox.parked") == []


# --- the message's own ---


@pytest.mark.parametrize("code", [10, 87])
@produces()
def test_who_fails_alone_is_rejected_and_its_set_goes(outbox, mock, start, code):
    """Twenty, ten, five, two, one: at the fifth no the first is alone. They have one key: without one twice they need not be one set."""
    topic = mock.create_topic()
    start(mock)
    mock.answer(PRODUCE, *[code] * 5)
    outbox.generate(topic, 20, key="'k'")
    outbox.wait_states({"dispatched": 19, "rejected": 1})
    row = outbox.row(1)
    assert (row.state, row.attempts) == ("rejected", 1)
    assert row.first_error_at == row.last_error_at and row.first_error_at >= row.created_at
    assert_arrived(outbox, mock, topic, but=[1])


@produces("not persisted 10")
def test_more_than_the_topic_takes(outbox, kafka, start):
    """Where messages are compressed nobody can tell beforehand."""
    topic = kafka.create_topic(config={"max.message.bytes": 2000, "compression.type": "producer"})
    start(kafka)
    outbox.generate(topic, 30, payload="case when n = 17 then (select string_agg(md5(i::text), '') from generate_series(1, 300) i)"
                                       " else 'p' end")
    outbox.wait_states({"dispatched": 29, "rejected": 1})
    row = outbox.row(17)
    assert (row.error_code, row.attempts) == ("MSG_SIZE_TOO_LARGE", 1) and "payload 9600 bytes" in row.error
    assert_arrived(outbox, kafka, topic, but=[17])


@produces("not persisted 32")
def test_a_record_time_that_the_topic_does_not_accept(outbox, kafka, start):
    """The topic takes no record that is older than the broker's clock, be it by a millisecond, as most are when they come."""
    topic = kafka.create_topic(config={"message.timestamp.before.max.ms": 0})
    start(kafka)

    def some_are_late():
        outbox.generate(topic, 30)
        outbox.wait_resolved()
        return outbox.states().get("rejected")

    wait_until(some_are_late, 60, "a message that takes a millisecond to the broker")
    assert set(outbox.states()) <= {"rejected", "dispatched"}
    assert outbox.sql("select distinct error_code, attempts from outbox.parked") == [("INVALID_TIMESTAMP", 1)]


@produces("not persisted 87")
def test_what_the_brokers_validation_refuses(outbox, guarded, start):  # noqa: F811
    """A compacted topic takes no record without a key; the relay may not read the topic's settings, so that the broker has to say it."""
    topic = guarded.create_topic(config={"cleanup.policy": "compact"})
    denial = Denial(guarded, "DescribeConfigs", "--topic", topic)
    start(guarded)
    outbox.generate(topic, 20, key="case when n <> 7 then 'k' || n end")
    outbox.wait_states({"dispatched": 19, "rejected": 1})
    row = outbox.row(7)
    assert (row.error_code, row.attempts) == ("INVALID_RECORD", 1) and "it has no key" in row.error
    denial.grant()
    assert_arrived(outbox, guarded, topic, but=[7])


@produces("not persisted any")
def test_any_other_no_is_tried_again_and_holds_its_key(outbox, mock, start):
    topic = mock.create_topic()
    start(mock, "--retry-initial-ms", 3000)
    mock.answer(PRODUCE, 42)
    first = outbox.insert(topic, key="a", payload="x")
    failed = outbox.wait_row(first.id, "failed")
    assert (failed.error_code, failed.attempts) == ("INVALID_REQUEST", 1) and topic in failed.error
    assert failed.created_at <= failed.first_error_at == failed.last_error_at < failed.next_attempt_at
    held = outbox.insert(topic, key="a", payload="waits")
    other = outbox.insert(topic, key="b", payload="goes")
    outbox.wait_row(other.id, "dispatched")
    assert outbox.wait_row(held.id, "held").waits_for_id == first.id
    mock.answer(PRODUCE, 42)
    wait_until(lambda: outbox.row(first.id).attempts == 2, 60, "the second attempt")
    again = outbox.wait_row(first.id, "failed")
    assert again.first_error_at == failed.first_error_at < again.last_error_at
    outbox.wait_states({"dispatched": 3})
    assert_arrived(outbox, mock, topic)


@produces()
def test_the_last_attempt_rejects(outbox, mock, start):
    topic = mock.create_topic()
    start(mock, "--retry-max-attempts", 3, "--retry-initial-ms", 10)
    mock.answer(PRODUCE, 42, 42, 42)
    row = outbox.wait_row(outbox.insert(topic, key="a", payload="x").id, "rejected")
    assert (row.error_code, row.attempts) == ("INVALID_REQUEST", 3) and "given up after 3 attempts" in row.error
    assert row.first_error_at < row.last_error_at
    outbox.wait_row(outbox.insert(topic, key="a", payload="goes on").id, "dispatched")


@produces()
def test_more_than_the_client_sends_for_its_headers(outbox, mock, start):
    """Payload and key are within the limit; librdkafka would count no more, and the broker would end the connection."""
    topic = mock.create_topic()
    start(mock, "--kafka", "message.max.bytes=2000")
    large = outbox.insert(topic, key="a", payload="x" * 1500, headers='{"trace": "%s"}' % ("y" * 800))
    row = outbox.wait_row(large.id, "rejected")
    assert row.error_code == "MSG_SIZE_TOO_LARGE" and "headers 805" in row.error and "limit of 2000" in row.error
    outbox.wait_row(outbox.insert(topic, key="a", payload="x").id, "dispatched")


# --- the topic's ---


@produces("not persisted 29")
def test_a_topic_that_may_not_be_written(outbox, guarded, start):  # noqa: F811
    topic = guarded.create_topic()
    denial = Denial(guarded, "Write", "--topic", topic)
    start(guarded)
    outbox.generate(topic, 10)
    outbox.wait_states({"failed": 1, "held": 9})
    denial.grant()
    outbox.wait_states({"dispatched": 10})


LATE = ["--metadata-refresh-ms", 3600000]  # the relay's own look comes too late
EARLY = ["--kafka", "topic.metadata.refresh.interval.ms=100", "--kafka", "topic.metadata.propagation.max.ms=200"]


@produces("refused at once 29")
def test_a_topic_that_may_no_longer_be_written_is_refused_by_the_client_too(outbox, mock, start):
    """The client remembers the broker's no for a while."""
    topic = mock.create_topic()
    running = start(mock, "--retry-initial-ms", 50, "--retry-max-ms", 100)
    mock.answer(PRODUCE, 29, 29)
    outbox.generate(topic, 20)
    running.wait_log("refused at once")
    outbox.wait_resolved()
    assert_arrived(outbox, mock, topic)


@produces("refused at once -188", "look-up of the topic any")
def test_a_topic_that_is_no_longer_there(outbox, mock, start):
    """The client has learnt it, the relay not yet; when the topic is there again all goes, whatever the relay's interval."""
    topic = mock.create_topic()
    running = start(mock, *LATE, *EARLY, "--retry-initial-ms", 100, "--retry-max-ms", 500)
    outbox.insert(topic, key="a", payload="x")
    outbox.wait_states({"dispatched": 1})
    mock.set_topic_error(topic, 3)
    wait_until(lambda: outbox.insert(topic, key="a", payload="x") and "refused at once" in running.log_text(), 60, "the refusal")
    running.wait_log("look-up refused")
    mock.set_topic_error(topic, 0)
    outbox.wait_resolved()
    assert_arrived(outbox, mock, topic)


@produces("refused at once -190")
def test_a_topic_made_anew_with_fewer_partitions(outbox, kafka, start):
    """
    The client counts again before the relay does: what it refuses goes after the relay's next look, which is soon. Where the relay
    was first this time, another topic is tried.
    """
    running = start(kafka, *LATE, *EARLY, "--kafka", "debug=topic", "--retry-initial-ms", 100, "--retry-max-ms", 500)
    for _ in range(10):
        topic = kafka.create_topic(partitions=8)
        outbox.generate(topic, 50)
        outbox.wait_states({"dispatched": 50}, topic)
        kafka.delete_topic(topic)
        kafka.create_topic(topic, partitions=1)
        counted = re.compile(rf"Topic {topic} partition count changed from \d+ to 1\b")
        wait_until(lambda: any(counted.search(line) for line in running.lines), 60, "the client's own look")

        def is_refused():
            return any(" refused at once " in line and " code=UNKNOWN_PARTITION " in line for line in running.lines)

        wait_until(lambda: outbox.insert(topic, key="a", payload="x", partition=7)
                   and (is_refused() or outbox.states(topic).get("rejected")), 60, "the refusal, or the relay's own no")
        if is_refused():
            break
    assert is_refused(), "the relay was first each time"
    wait_until(lambda: outbox.states(topic).get("rejected"), 60, "the end of what has no partition any more")


@produces("not persisted -190")
def test_a_topic_whose_partitions_the_client_does_not_get_to_know(outbox, mock, start):
    topic = mock.create_topic()
    mock.set_topic_error(topic, 5)  # no leader yet
    start(mock, "--kafka", "topic.metadata.propagation.max.ms=300")
    outbox.generate(topic, 5)
    outbox.wait_states({"failed": 1, "held": 4})
    mock.set_topic_error(topic, 0)
    outbox.wait_states({"dispatched": 5})
    assert_arrived(outbox, mock, topic)


# --- the relay's, the producer's ---


@pytest.mark.parametrize("code, name", [(31, "CLUSTER_AUTHORIZATION_FAILED"), (53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")])
@produces()
def test_a_producer_that_may_not_write_is_made_anew_until_it_may(outbox, mock, start, code, name):
    topic = mock.create_topic()
    running = start(mock)
    mock.answer(PRODUCE, code, code)
    outbox.generate(topic, 20)
    assert f"code={name}" in running.wait_log("the producer cannot go on")
    outbox.wait_states({"dispatched": 20})
    running.wait_log("the producer works again")
    assert outbox.sql("select * from outbox.parked") == []
    assert_arrived(outbox, mock, topic)


@produces("not persisted 31", "not persisted 53")
def test_rights_that_a_produce_request_lacks(outbox, mock, start):
    topic = mock.create_topic()
    running = start(mock)
    for number, code in enumerate([31, 53], 1):
        mock.answer(PRODUCE, code)
        outbox.insert(topic, key="a", payload="x")
        outbox.wait_states({"dispatched": number})
        wait_until(lambda: running.log_text().count("the producer works again") == number, 30, "its recovery")


@produces("fatal for the producer 31")
def test_no_right_to_write_idempotently(outbox, mock, start):
    topic = mock.create_topic()
    mock.answer(INIT_PRODUCER_ID, 31, 31)
    start(mock)
    outbox.insert(topic, key="a", payload="x")
    outbox.wait_states({"dispatched": 1})


@produces("fatal for the producer 53")
def test_no_right_to_the_transactional_id(outbox, guarded, start):  # noqa: F811
    topic, name = guarded.create_topic(), f"denied-{outbox.database.name}"
    denial = Denial(guarded, "Write", "--transactional-id", name)
    running = start(guarded, *EXACTLY_ONCE, name)
    outbox.generate(topic, 10)
    running.wait_log("TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    assert outbox.sql("select * from outbox.parked") == []
    denial.grant()
    outbox.wait_states({"dispatched": 10})


@produces("fatal for the producer any")
def test_a_producer_that_the_broker_does_not_take_is_made_anew(outbox, mock, start):
    topic = mock.create_topic()
    mock.answer(INIT_PRODUCER_ID, 50)  # INVALID_TRANSACTION_TIMEOUT
    start(mock)
    outbox.insert(topic, key="a", payload="x")
    outbox.wait_states({"dispatched": 1})


@produces()  # the report may come too late: the fatal error alone has another producer made
def test_what_may_have_arrived_is_looked_up_by_another_producer(outbox, mock, start):
    topic = mock.create_topic()
    running = start(mock)
    outbox.generate(topic, 5)
    outbox.wait_states({"dispatched": 5})
    mock.answer(PRODUCE, 45)
    outbox.generate(topic, 20, first=6, key="'k'")  # one set
    outbox.wait_states({"dispatched": 25})
    line = running.wait_log("looked up what arrived")
    assert " arrived=0 " in line and " to_send=20 " in line
    assert outbox.sql("select * from outbox.parked") == []
    assert_arrived(outbox, mock, topic)


@produces("not persisted 47", "not persisted 90")
def test_a_producer_whose_id_is_taken_is_made_anew_and_no_message_is_blamed(outbox, mock, start):
    """One attempt would be the last."""
    topic = mock.create_topic()
    running = start(mock, "--retry-max-attempts", 1)
    for number, code in enumerate([47, 90], 1):
        mock.answer(PRODUCE, code)
        outbox.insert(topic, key="a", payload="x")
        outbox.wait_states({"dispatched": number})
        wait_until(lambda: running.log_text().count("the producer works again") == number, 30, "its recovery")
    assert outbox.sql("select * from outbox.parked") == []


@pytest.mark.parametrize("code", [45, 47])
@produces()
def test_a_transactional_producer_that_failed_is_made_anew_and_no_message_is_blamed(outbox, mock, start, code):
    topic = mock.create_topic()
    running = start(mock, *EXACTLY_ONCE, "failed", "--retry-max-attempts", 1)
    mock.answer(PRODUCE, code)
    outbox.insert(topic, key="a", payload="x")
    running.wait_log("the producer cannot go on")
    outbox.wait_states({"dispatched": 1})
