"""A private Kafka broker, its topics, and reading back all that a topic holds."""

import itertools
import os
import signal
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewPartitions, NewTopic

from .devserver import devserver, free_port
from .process import freeze
from .wait import wait_until

ANSWER_S = 20


@dataclass(slots=True)
class Record:
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list

    @property
    def message_id(self):
        """The dedup identity: the header `id`."""
        return next(value.decode() for name, value in self.headers if name == "id")


class Kafka:
    """A running broker. properties (name -> value) can be changed; they count from the next start()."""

    def __init__(self, folder, properties=None):
        self.folder = folder
        self.port = free_port()
        self.controller_port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.properties = dict(properties or {})
        self._names = itertools.count(1)
        self.start()
        self.client = {"bootstrap.servers": self.bootstrap, "log_level": 0, "allow.auto.create.topics": False}
        self.admin = AdminClient(self.client)

    # --- the process ---

    def start(self):
        """Starts the broker unless it runs, and returns when it answers a metadata request."""
        options = ["--controller-port", self.controller_port, "--short-lived"]
        for name, value in self.properties.items():
            options += ["-c", f"{name}={value}"]
        devserver("kafka", "start", self.folder, self.port, *options)

    def stop(self):
        """A clean shutdown."""
        devserver("kafka", "stop", self.folder)

    def kill(self):
        """SIGKILL."""
        devserver("kafka", "stop", self.folder, "--kill")

    def freeze(self):
        freeze([self._pid()])

    def thaw(self):
        os.kill(self._pid(), signal.SIGCONT)

    def _pid(self):
        return int((self.folder / "kafka.pid").read_text())

    # --- topics ---

    def create_topic(self, name=None, partitions=1, config=None):
        """Creates a topic (with a fresh name if none is given), waits for its leaders and returns its name."""
        name = name or f"topic-{next(self._names)}"
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
        results(self.admin.create_topics([topic]))
        wait_until(lambda: len(self._led_partitions(name)) == partitions, ANSWER_S, f"topic {name}")
        return name

    def delete_topic(self, name):
        results(self.admin.delete_topics([name]))
        wait_until(lambda: name not in self.topics(), ANSWER_S, f"the end of topic {name}")

    def add_partitions(self, name, total):
        results(self.admin.create_partitions([NewPartitions(name, total)]))
        wait_until(lambda: len(self._led_partitions(name)) == total, ANSWER_S, f"{total} partitions of {name}")

    def alter_config(self, name, config):
        """Changes some of a topic's settings and leaves its others as they are."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        ((_, future),) = self.admin.describe_configs([resource]).items()
        for entry in future.result(ANSWER_S).values():
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value:
                resource.set_config(entry.name, entry.value)
        for key, value in config.items():
            resource.set_config(key, str(value), overwrite=True)
        results(self.admin.alter_configs([resource]))

    def topics(self):
        return set(self.admin.list_topics(timeout=ANSWER_S).topics)

    def partitions(self, name):
        """How many partitions a topic has; 0 when there is no such topic."""
        topic = self.admin.list_topics(timeout=ANSWER_S).topics.get(name)
        return len(topic.partitions) if topic else 0

    def _led_partitions(self, name):
        topic = self.admin.list_topics(timeout=ANSWER_S).topics.get(name)
        return [p for p in topic.partitions.values() if p.leader >= 0] if topic else []

    # --- records ---

    def produce(self, topic, value, key=None, headers=None, partition=None):
        """Writes one record as some other program would, and waits for its acknowledgment."""
        failures = []
        producer = Producer(self.client)
        where = {} if partition is None else {"partition": partition}
        producer.produce(topic, value, key, headers=headers or [],
                         on_delivery=lambda error, _: failures.append(str(error)) if error else None, **where)
        assert producer.flush(ANSWER_S) == 0, "no answer from the broker"
        assert not failures, failures

    def read_all(self, topic, isolation="read_uncommitted", deadline_s=120):
        """
        Every record from each partition's beginning to the end it had when the call was made, in offset order. With
        read_committed it waits until the transactions that were open then, or whose end was on its way to the partitions, are over.
        """
        options = self.client | {
            "group.id": "reader", "enable.auto.commit": False, "auto.offset.reset": "error",
            "enable.partition.eof": True, "fetch.wait.max.ms": 10,
        }
        ends = self._ends(topic, options | {"isolation.level": "read_uncommitted"})
        consumer = Consumer(options | {"isolation.level": isolation})
        try:
            return self._read_to(ends, consumer, topic, deadline_s)
        finally:
            consumer.close()

    def _ends(self, topic, options):
        """(first offset, end) of each partition that holds anything; to a read_committed reader the end is where a transaction begins."""
        consumer = Consumer(options)
        try:
            found = {partition: _watermarks(consumer, topic, partition) for partition in range(self.partitions(topic))}
        finally:
            consumer.close()
        return {partition: (low, high) for partition, (low, high) in found.items() if low < high}

    def _read_to(self, wanted, consumer, topic, deadline_s):
        records = []

        def drained():
            for message in consumer.consume(10000, timeout=0.05):
                _take(message, wanted, records)
            return not wanted

        consumer.assign([TopicPartition(topic, partition, low) for partition, (low, _) in wanted.items()])
        wait_until(drained, deadline_s, f"the end of topic {topic}")
        records.sort(key=lambda record: (record.partition, record.offset))
        return records


def _watermarks(consumer, topic, partition):
    """The first offset and the end, as soon as the client knows who leads the partition: of a new topic it may not yet."""
    def asked():
        try:
            return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_S)
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE):
                raise
            return None

    return wait_until(asked, ANSWER_S, f"the leader of {topic} [{partition}]")


def _take(message, wanted, records):
    """Keeps a record, or notes a partition's end: counting is not enough, the last offset can be a control marker."""
    error, partition = message.error(), message.partition()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    if partition not in wanted:
        return
    end = wanted[partition][1]
    if error is None and message.offset() < end:
        records.append(Record(message.topic(), partition, message.offset(), message.key(), message.value(),
                              message.headers() or []))
    if message.offset() >= end - (error is None):
        del wanted[partition]


def results(futures):
    for future in futures.values():
        future.result(ANSWER_S)
