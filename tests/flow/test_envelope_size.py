"""The size rule at its edge: a real broker takes a record of exactly max.message.bytes and refuses one byte more."""
import json
import uuid

import pytest
from confluent_kafka import KafkaError, Producer
from pure import Pure

CASES = {
    "null key": (None, b"v" * 300, {}),
    "null value": (b"k" * 200, None, {}),
    "empty key and value": (b"", b"", {}),
    "value length of one byte": (b"key", b"v" * 63, {}),
    "value length of two bytes": (b"key", b"v" * 64, {}),
    "value length of three bytes": (b"key", b"v" * 8192, {}),
    "body length of two bytes, just": (None, b"v" * 8144, {}),
    "headers, one of them null": (b"key", b"v" * 100, {"a": "b" * 70, "trace": None, "日本": "é"}),
    "more headers than a byte counts": (b"key", b"v" * 100, {f"h{i}": str(i) for i in range(80)}),
}


@pytest.fixture(scope="module")
def pure(tmp_path_factory):
    return Pure(tmp_path_factory.mktemp("pure"))


def send(kafka, topic, key, value, headers):
    """The broker's answer to a lone, uncompressed record: None, or the error's code."""
    answers = []
    producer = Producer({
        "bootstrap.servers": kafka.bootstrap, "compression.type": "none", "enable.idempotence": True,
        "message.timeout.ms": 30000,
    })
    wire = [("id", str(uuid.uuid4()))] + [(name, text) for name, text in headers.items()]
    producer.produce(topic, key=key, value=value, headers=wire, partition=0,
                     on_delivery=lambda error, _: answers.append(error.code() if error else None))
    producer.flush(40)
    assert len(answers) == 1, "no answer within the deadline"
    return answers[0]


@pytest.mark.parametrize("name", CASES)
def test_broker_counts_the_bytes_we_count(kafka, pure, name):
    key, value, headers = CASES[name]
    limit = pure.size(key, value, json.dumps(headers))
    topic = f"size-{uuid.uuid4().hex}"
    kafka.create_topic(topic, 1, {"max.message.bytes": str(limit)})
    assert send(kafka, topic, key, value, headers) is None
    longer_key = (key or b"") + b"+" if value is None else key
    longer_value = None if value is None else value + b"+"
    assert pure.size(longer_key, longer_value, json.dumps(headers)) > limit
    assert send(kafka, topic, longer_key, longer_value, headers) == KafkaError.MSG_SIZE_TOO_LARGE
