"""The harness itself: servers come up, restart with their data, and topics are read to their true end."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer

from lib.relay import Relay
from lib.wait import wait_until


def test_wait_until_fails_at_its_deadline():
    with pytest.raises(AssertionError, match="the moon did not come"):
        wait_until(lambda: False, 0, "the moon")


def test_a_database_survives_a_crash_of_its_server(own_postgres, new_database):
    server = own_postgres(settings={"work_mem": "5MB"})
    database = new_database(server)
    database.execute("create table t as select 1 as n")
    server.stop("immediate")
    server.settings["work_mem"] = "6MB"
    server.start()
    assert database.rows("select n, current_setting('work_mem') from t") == [(1, "6MB")]


def test_another_major_version_is_at_hand(postgres17, new_database):
    assert new_database(postgres17).value("show server_version_num").startswith("17")


def test_reading_a_topic_returns_every_record_in_offset_order(kafka):
    topic = kafka.create_topic(partitions=2)
    assert kafka.read_all(topic) == []
    kafka.produce(topic, b"one", b"k", [("id", b"7")], partition=1)
    kafka.produce(topic, None, b"k", partition=0)
    kafka.produce(topic, b"", partition=1)
    found = [(r.partition, r.offset, r.key, r.value) for r in kafka.read_all(topic)]
    assert found == [(0, 0, b"k", None), (1, 0, b"k", b"one"), (1, 1, None, b"")]
    assert kafka.read_all(topic)[1].message_id == "7"


def test_reading_a_topic_passes_transaction_markers(kafka):
    topic = kafka.create_topic()
    producer = Producer(kafka.client | {"transactional.id": "harness"})
    producer.init_transactions()
    for value, end in ((b"kept", producer.commit_transaction), (b"dropped", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush()
        end()
    assert [r.value for r in kafka.read_all(topic)] == [b"kept", b"dropped"]
    assert [r.value for r in kafka.read_all(topic, isolation="read_committed")] == [b"kept"]


def test_reading_what_is_committed_waits_for_the_transaction_that_is_open(kafka):
    """Its marker may still be on its way when the producer has heard that it is committed."""
    topic = kafka.create_topic()
    producer = Producer(kafka.client | {"transactional.id": "late"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"late")
    producer.flush()
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(kafka.read_all, topic, "read_committed")
        with pytest.raises(TimeoutError):
            reading.result(0.5)
        producer.commit_transaction()
        assert [record.value for record in reading.result()] == [b"late"]


def test_changing_one_setting_of_a_topic_keeps_the_others(kafka):
    topic = kafka.create_topic(config={"cleanup.policy": "compact"})
    kafka.alter_config(topic, {"max.message.bytes": 1000})
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        kafka.produce(topic, bytes(2000), b"k")
    with pytest.raises(AssertionError, match="INVALID_RECORD|Broker failed to validate"):
        kafka.produce(topic, b"compacted topics need a key")


def test_a_killed_broker_comes_back_with_its_records(own_kafka):
    broker = own_kafka()
    topic = broker.create_topic()
    broker.produce(topic, b"one")
    broker.kill()
    broker.start()
    assert [r.value for r in broker.read_all(topic)] == [b"one"]


def test_topics_come_and_go(kafka):
    topic = kafka.create_topic(partitions=1)
    kafka.add_partitions(topic, 3)
    assert kafka.partitions(topic) == 3
    kafka.delete_topic(topic)
    assert kafka.partitions(topic) == 0


def test_only_the_other_broker_creates_topics_by_itself(kafka, kafka_autocreate):
    asking = {"allow.auto.create.topics": True, "message.timeout.ms": 5000}
    for broker, created in ((kafka, False), (kafka_autocreate, True)):
        producer = Producer(broker.client | asking)
        producer.produce("never-created", b"x")
        producer.flush(20)
        assert ("never-created" in broker.topics()) is created


def test_waiting_for_a_log_line_ends_with_the_process():
    with Relay("/bin/echo") as process:
        with pytest.raises(AssertionError, match="before exit code 0"):
            process.wait_log("never said")
