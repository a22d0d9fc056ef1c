"""What a topic would refuse is rejected before it is sent, with numbers, by a look at the topic that is fresh."""

from confluent_kafka.admin import ConfigResource
from test_outcome_access import AUTHORIZER, Denial
from verify import verify

from lib.wait import wait_until

PLAIN = ["--kafka", "compression.type=none"]
SEEN_BY_THE_RELAY = "more than the max.message.bytes of topic"


def alter(kafka, topic, name, value):
    """Changes a setting and waits until the broker says so itself."""
    kafka.alter_config(topic, {name: value})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    wait_until(lambda: next(iter(kafka.admin.describe_configs([resource]).values())).result(20)[name].value == str(value),
               20, f"{name} = {value}")


def assert_missing(outbox, kafka, topic, ids):
    verdict = verify(outbox.database, kafka, [topic])
    assert verdict.missing == ids, verdict
    assert not (verdict.doubled or verdict.disordered or verdict.false_receipts), verdict


def test_case_05_the_topics_limit_is_known_to_the_byte(outbox, kafka, relay):
    """A record batch of exactly the limit goes, one byte more is rejected unsent: the rule is the broker's own."""
    topic = kafka.create_topic(config={"max.message.bytes": 3000})
    outbox.generate(topic, 300, key="'k' || n % 7", payload="repeat('x', 2700 + n)")
    relay(outbox.database, *PLAIN)
    outbox.wait_resolved()
    rejected = outbox.sql("select s.*, octet_length(m.payload) as size from outbox.status s join outbox.message m using (id)"
                          " where s.state = 'rejected' order by id")
    assert rejected and {row.error_code for row in rejected} == {"MSG_SIZE_TOO_LARGE"}
    for row in rejected:
        assert SEEN_BY_THE_RELAY in row.error and f"payload {row.size}" in row.error and topic in row.error
    assert [row.id for row in rejected] == list(range(rejected[0].id, 301))
    assert "has 3001 bytes" in rejected[0].error
    assert_missing(outbox, kafka, topic, [row.id for row in rejected])


def test_a_limit_that_was_raised_counts_at_once(outbox, kafka, relay):
    topic = kafka.create_topic(config={"max.message.bytes": 3000})
    relay(outbox.database, *PLAIN, "--metadata-refresh-ms", 3600000)
    small = outbox.insert(topic, key="a", payload="x")
    outbox.wait_row(small.id, "dispatched")
    large = outbox.insert(topic, key="a", payload="x" * 4000)
    assert SEEN_BY_THE_RELAY in outbox.wait_row(large.id, "rejected").error
    alter(kafka, topic, "max.message.bytes", 5000)
    outbox.wait_row(outbox.insert(topic, key="a", payload="x" * 4000).id, "dispatched")
    outbox.sql("select outbox.retry(%s)", large.message_id)
    outbox.wait_row(large.id, "dispatched")


def test_case_07_a_null_key_on_a_compacted_topic_is_never_sent(outbox, kafka, relay):
    topic = kafka.create_topic(config={"cleanup.policy": "compact,delete"})
    outbox.generate(topic, 40, key="case when n % 10 > 0 then 'k' || n % 3 end")
    running = relay(outbox.database)
    outbox.wait_resolved()
    rejected = outbox.sql("select * from outbox.status where state = 'rejected' order by id")
    assert [row.id for row in rejected] == [10, 20, 30, 40]
    assert all(f"no key, which topic {topic} refuses" in row.error for row in rejected)
    assert_missing(outbox, kafka, topic, [10, 20, 30, 40])
    alter(kafka, topic, "cleanup.policy", "delete")
    outbox.sql("select outbox.retry(message_id) from outbox.parked")
    outbox.wait_states({"dispatched": 40})
    assert running.running


def test_a_partition_that_fresh_metadata_lacks_is_rejected_and_one_that_was_added_is_found(outbox, kafka, relay):
    topic = kafka.create_topic(partitions=2)
    relay(outbox.database, "--metadata-refresh-ms", 3600000)
    outbox.generate(topic, 20)
    outbox.wait_states({"dispatched": 20})
    beyond = outbox.insert(topic, key="a", payload="x", partition=2)
    row = outbox.wait_row(beyond.id, "rejected")
    assert (row.error_code, row.attempts) == ("UNKNOWN_PARTITION", 2), "only a second look at the topic decides"
    assert row.error == f"topic {topic} has 2 partitions: there is no partition 2"
    kafka.add_partitions(topic, 3)
    there = outbox.insert(topic, key="b", payload="x", partition=2)
    row = outbox.wait_row(there.id, "dispatched")
    assert row.partition == 2
    outbox.generate(topic, 20, first=21)
    outbox.wait_states({"dispatched": 41, "rejected": 1})


def test_who_may_not_describe_a_topic_leaves_it_to_the_broker(outbox, own_kafka, relay):
    """DescribeConfigs is refused: the limits are advice, nothing waits for them, and the broker's own no has the same end."""
    broker = own_kafka(AUTHORIZER)
    topic = broker.create_topic(config={"max.message.bytes": 3000})
    Denial(broker, "DescribeConfigs", "--topic", topic)
    relay(outbox.database, *PLAIN, brokers=broker.bootstrap)
    outbox.generate(topic, 50, key="'a'", payload="case when n = 25 then repeat('x', 4000) else 'p' end")
    outbox.wait_states({"dispatched": 49, "rejected": 1})
    row = outbox.row(25)
    assert row.error_code == "MSG_SIZE_TOO_LARGE" and SEEN_BY_THE_RELAY not in row.error and "payload 4000" in row.error
    assert_missing(outbox, broker, topic, [25])
