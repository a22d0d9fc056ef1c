"""A Kafka broker of a cluster that the relays see through proxies, and the judge does not."""

import re

from confluent_kafka.admin import NewTopic
from lib.devserver import free_port
from lib.kafka import Kafka
from lib.wait import wait_until

START_S = 300


class Broker(Kafka):
    """
    One broker of a cluster whose first one is the controller, too. A second listener sends whoever asks it for addresses to
    a proxy, and so on to wherever that forwards: the relays see the cluster through proxies, the judge does not.
    """

    def __init__(self, folder, node, first=None, replicas=1):
        self.node, self.replicas = node, replicas
        self.relay_port, self.proxy_port = free_port(), free_port()
        self._first = first or self
        super().__init__(folder)

    def start(self):
        controls = self._first is self
        self.properties = {
            "node.id": self.node,
            "process.roles": "broker,controller" if controls else "broker",
            "controller.quorum.voters": f"1@127.0.0.1:{self._first.controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap},RELAY://127.0.0.1:{self.relay_port}"
                         + f",CONTROLLER://127.0.0.1:{self.controller_port}" * controls,
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap},RELAY://127.0.0.1:{self.proxy_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,RELAY:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "replica.lag.time.max.ms": 5000,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "offsets.topic.replication.factor": self.replicas,
            "transaction.state.log.replication.factor": self.replicas,
            "transaction.state.log.min.isr": self._least_in_sync(),
            "min.insync.replicas": self._least_in_sync(),
        }
        if not controls:
            self._join_cluster()
        wait_until(self._is_up, START_S, "the broker's start")

    def _is_up(self):
        """On a busy machine a broker takes longer than devserver waits for it."""
        try:
            super().start()
            return True
        except AssertionError as error:
            if "did not answer" not in str(error) and "does not answer" not in str(error):
                raise
            return False

    def _least_in_sync(self):
        return 2 if self.replicas > 2 else 1

    def _join_cluster(self):
        """A broker that is no controller needs no more of a formatted storage than to whom it belongs."""
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        if not (data / "meta.properties").exists():
            first = (self._first.folder / "data" / "meta.properties").read_text()
            (cluster,) = re.findall(r"^cluster\.id=.*$", first, re.MULTILINE)
            (data / "meta.properties").write_text(f"version=1\n{cluster}\nnode.id={self.node}\n")

    def create_topic(self, name=None, partitions=1, config=None):
        topic = NewTopic(name, num_partitions=partitions, replication_factor=self.replicas, config=config or {})
        self.admin.create_topics([topic])[name].result(30)
        wait_until(lambda: len(self._led_partitions(name)) == partitions, 30, f"topic {name}")
        return name
