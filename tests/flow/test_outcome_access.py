"""Rights that Kafka's own authorizer denies: to one topic, to all of them; what is said, who waits, and how it heals."""

import pytest
from verify import verify

from lib.devserver import devserver
from lib.kafka import Kafka
from lib.wait import wait_until

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
              "allow.everyone.if.no.acl.found": "true"}


@pytest.fixture(scope="module")
def guarded(folders):
    broker = Kafka(folders.new("kafka"), AUTHORIZER)
    yield broker
    broker.kill()


class Denial:
    """Everything but one operation on a resource is allowed, until grant()."""

    def __init__(self, broker, operation, *resource):
        self.acls = lambda *words: devserver("kafka", "acls", "--bootstrap-server", broker.bootstrap, *words, *resource)
        self.operation = operation
        self.acls("--add", "--allow-principal", "User:*", "--operation", "All")
        self.acls("--add", "--deny-principal", "User:*", "--operation", operation)

    def grant(self):
        self.acls("--remove", "--force", "--deny-principal", "User:*", "--operation", self.operation)


@pytest.mark.parametrize("operation", ["Write", "Describe"])
def test_a_topic_that_may_not_be_written_stops_alone_and_heals_by_the_grant(outbox, guarded, relay, operation):
    good, denied = guarded.create_topic(partitions=2), guarded.create_topic(partitions=2)
    denial = Denial(guarded, operation, "--topic", denied)
    running = relay(outbox.database, brokers=guarded.bootstrap)
    outbox.generate(denied, 50)
    outbox.generate(good, 100)
    outbox.wait_states({"dispatched": 100}, good)
    outbox.wait_states({"failed": 1, "held": 49}, denied)
    (failed,) = outbox.sql("select * from outbox.status where state = 'failed'")
    assert failed.error_code == "TOPIC_AUTHORIZATION_FAILED" and denied in failed.error
    wait_until(lambda: outbox.row(failed.id).attempts >= 3, 60, "three attempts")
    assert running.log_text().count("will be tried again") <= 2, "a line for the first of each partition, not for each attempt"
    denial.grant()
    outbox.wait_resolved()
    verdict = verify(outbox.database, guarded, [good, denied])
    assert verdict.exactly_once(), verdict


def test_topic_trouble_is_nobodys_last_attempt(outbox, guarded, relay):
    denied = guarded.create_topic()
    denial = Denial(guarded, "Write", "--topic", denied)
    relay(outbox.database, "--retry-max-attempts", 2, "--retry-initial-ms", 50, brokers=guarded.bootstrap)
    row = outbox.insert(denied, payload="x")
    wait_until(lambda: outbox.row(row.id).attempts >= 4, 60, "four attempts")
    denial.grant()
    outbox.wait_states({"dispatched": 1})


LONG_WITHOUT = """
select condition = 'no producer' and clock_timestamp() - condition_since > interval '3 seconds' from outbox.leader
"""


def test_no_right_to_write_anything_is_the_relays_trouble_said_once(outbox, own_kafka, relay):
    broker = own_kafka(AUTHORIZER)
    topic = broker.create_topic()
    denials = [Denial(broker, "Write", "--topic", "*"), Denial(broker, "IdempotentWrite", "--cluster")]
    running = relay(outbox.database, brokers=broker.bootstrap)
    outbox.generate(topic, 20)
    line = running.wait_log("the producer cannot go on")
    assert "CLUSTER_AUTHORIZATION_FAILED" in line and "never heals without a grant" in line
    wait_until(lambda: sum(outbox.states().values()) == 20, 60, "all messages")
    assert outbox.states().keys() <= {"pending", "requesting"}  # a producer that fails at once keeps the relay from claiming
    lines = len(running.lines)
    wait_until(lambda: outbox.sql(LONG_WITHOUT)[0][0], 60, "several more producers, as SQL tells it")
    assert len(running.lines) - lines < 20 and running.log_text().count("the producer cannot go on") == 1
    assert outbox.sql("select 1 from outbox.parked") == []
    for denial in denials:
        denial.grant()
    outbox.wait_states({"dispatched": 20})
    running.wait_log("the producer works again")
    assert verify(outbox.database, broker, [topic]).exactly_once()
