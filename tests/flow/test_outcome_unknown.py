"""Messages that may have arrived: looked up, sent again blindly, or left to a person, as on_unknown says."""

import pytest
from verify import verify

COUNT = 200


def lose_the_answers(outbox, broker, relay, topic):
    """The broker freezes with messages on their way to it; then the relay is killed, and nobody knows what arrived."""
    running = relay(outbox.database, brokers=broker.bootstrap)
    outbox.generate(topic, 10)
    outbox.wait_states({"dispatched": 10})
    broker.freeze()
    outbox.generate(topic, COUNT, first=11)
    outbox.wait_states({"dispatched": 10, "requesting": COUNT})
    running.kill()
    broker.thaw()


def copies(broker, topic, message):
    return sum(record.message_id == str(message.message_id) for record in broker.read_all(topic))


@pytest.fixture
def broker(own_kafka):
    return own_kafka()


@pytest.mark.parametrize("policy", ["look_up_then_resend", "resend", "hold"])
def test_case_29_after_a_crash_the_policy_decides(outbox, broker, relay, policy):
    topic = broker.create_topic()
    lose_the_answers(outbox, broker, relay, topic)
    first, = outbox.sql("select message_id, key, payload from outbox.message where id = 11")
    if copies(broker, topic, first) == 0:  # as if this one had arrived: the relay cannot tell the difference
        broker.produce(topic, first.payload.encode(), first.key.encode(), [("id", str(first.message_id).encode())], 0)
    running = relay(outbox.database, "--on-unknown", policy, brokers=broker.bootstrap)
    outbox.wait_resolved()
    assert outbox.row(11).state == "dispatched"
    assert copies(broker, topic, first) == (2 if policy == "resend" else 1)
    assert ("looked up what arrived" in running.log_text()) == (policy != "resend")
    verdict = verify(outbox.database, broker, [topic])
    assert not (verdict.invented or verdict.false_receipts), verdict
    states = outbox.states()
    assert states["dispatched"] + states.get("rejected", 0) == 10 + COUNT
    assert len(verdict.missing) == states.get("rejected", 0)
    assert states.get("rejected", 0) == 0 or policy == "hold"
    assert {row.error_code for row in outbox.sql("select error_code from outbox.parked")} <= {"UNKNOWN_OUTCOME"}


@pytest.mark.parametrize("policy", ["look_up_then_resend", "hold"])
def test_what_a_stop_gave_up_is_looked_up_before_anything_else_happens_to_it(outbox, broker, relay, policy):
    """The broker is frozen past the flush deadline and has the messages when it thaws: they are found, none is doubled or parked."""
    topic = broker.create_topic()
    running = relay(outbox.database, "--shutdown-flush-ms", 200, brokers=broker.bootstrap)
    outbox.generate(topic, 10)
    outbox.wait_states({"dispatched": 10})
    broker.freeze()
    outbox.generate(topic, 5, first=11)
    outbox.wait_states({"dispatched": 10, "requesting": 5})
    running.signal(15)
    running.wait_log("no acknowledgment before the deadline")
    running.wait(60)
    assert outbox.sql("select count(*)::int from outbox.parked where state = 'requesting'")[0].count == 5
    broker.thaw()
    wanted = {str(row.message_id) for row in outbox.sql("select message_id from outbox.message where id > 10")}
    there = wanted & {record.message_id for record in broker.read_all(topic)}
    again = relay(outbox.database, "--on-unknown", policy, brokers=broker.bootstrap)
    again.wait_log("looked up what arrived")
    outbox.wait_resolved()
    verdict = verify(outbox.database, broker, [topic])
    assert not (verdict.doubled or verdict.false_receipts), verdict
    states = outbox.states()
    print(len(there), states)
    if policy == "hold":
        assert states.get("rejected", 0) <= 5 - len(there)
    else:
        assert states == {"dispatched": 15}
