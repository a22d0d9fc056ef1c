"""What confluent_kafka's admin client cannot do: records and a group's offsets are deleted by Kafka's own commands."""

import json
import subprocess
import tempfile

from .devserver import devserver


def _run(broker, command, *args):
    jars = devserver("kafka", "jars")
    done = subprocess.run(["java", "-cp", f"{jars}/*", f"org.apache.kafka.tools.{command}", "--bootstrap-server",
                           broker.bootstrap, *args], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "Error" not in done.stdout, done.stdout + done.stderr


def delete_records(broker, topics):
    """Deletes all that the topics hold, as retention would in time."""
    ends = [{"topic": topic, "partition": partition, "offset": -1}
            for topic in topics for partition in range(broker.partitions(topic))]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"partitions": ends, "version": 1}, file)
        file.flush()
        _run(broker, "DeleteRecordsCommand", "--offset-json-file", file.name)


def delete_group(broker, group):
    """Deletes a consumer group with its offsets, as their expiry would."""
    _run(broker, "consumer.group.ConsumerGroupCommand", "--delete", "--group", group)
