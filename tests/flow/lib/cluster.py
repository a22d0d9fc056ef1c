"""A second broker beside a private Kafka, for partitions that can die alone."""

import re

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from .kafka import ANSWER_S, Kafka, results
from .wait import wait_until


class SecondBroker(Kafka):
    """A broker without a controller that joins the cluster of `first`; what it alone has dies with it."""

    def __init__(self, folder, first):
        self._first = first
        super().__init__(folder)

    def start(self):
        self.properties = {
            "node.id": 2,
            "process.roles": "broker",
            "controller.quorum.voters": f"1@127.0.0.1:{self._first.controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
        }
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        if not (data / "meta.properties").exists():  # all that a broker needs of a formatted storage is to whom it belongs
            first = (self._first.folder / "data" / "meta.properties").read_text()
            (cluster,) = re.findall(r"^cluster\.id=.*$", first, re.MULTILINE)
            (data / "meta.properties").write_text(f"version=1\n{cluster}\nnode.id=2\n")
        super().start()

    def place_topic(self, name, nodes):
        """Creates a topic whose partitions have one replica each, on these nodes, and returns its name."""
        results(self.admin.create_topics([NewTopic(name, num_partitions=len(nodes), replica_assignment=[[node] for node in nodes])]))
        self.wait_led(name, len(nodes))
        return name

    def wait_led(self, name, partitions, deadline_s=60):
        """Waits until so many partitions of the topic have a leader."""
        wait_until(lambda: len(self._led(name)) == partitions, deadline_s, f"{partitions} leaders of {name}")

    def _led(self, name):
        topic = self._first.admin.list_topics(timeout=ANSWER_S).topics.get(name)
        return [p for p in topic.partitions.values() if p.leader >= 0] if topic else []


def make_transactions_topic(kafka):
    """Has the broker create its topic of transactions, while it is the only one: none of it will be elsewhere."""
    producer = Producer({**kafka.client, "transactional.id": "first"})
    producer.init_transactions(ANSWER_S)
