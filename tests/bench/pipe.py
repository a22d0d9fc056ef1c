"""The raw pipe: psql copies keys and payloads out, kcat produces them; no receipts, no recovery, nothing remembered."""
import subprocess
import time

from servers import cpu_seconds

QUERY = "copy (select key, payload from outbox.message order by id) to stdout"

# Idempotence, lz4 and Java's partitioner as the relay has them; the other settings are librdkafka's own: larger and
# smaller queues, batches and lingers were tried and none was faster beyond noise.
KCAT = ["-X", "enable.idempotence=true", "-X", "compression.codec=lz4", "-X", "topic.partitioner=murmur2_random"]


def run_pipe(postgres, kafka, database, topic, rows):
    """Publishes all rows; from the start of both programs until the last acknowledgment."""
    servers = [postgres.pid, kafka.pid]
    cpu_before = [cpu_seconds(pid) for pid in servers]
    start = time.monotonic()
    psql = subprocess.Popen(["psql", "-XAtq", "-d", postgres.conninfo(database), "-c", QUERY], stdout=subprocess.PIPE)
    kcat = subprocess.Popen(["kcat", "-P", "-q", "-b", kafka.brokers, "-t", topic, "-K", "\t", *KCAT],
                            stdin=psql.stdout)
    psql.stdout.close()
    if kcat.wait() != 0 or psql.wait() != 0:
        raise RuntimeError(f"the pipe broke: kcat {kcat.returncode}, psql {psql.returncode}")
    seconds = time.monotonic() - start
    cpu = [cpu_seconds(pid) - before for pid, before in zip(servers, cpu_before)]
    return {
        "seconds": seconds,
        "rate": rows / seconds,
        "postgres_cpu_us": 1e6 * cpu[0] / rows,
        "kafka_cpu_us": 1e6 * cpu[1] / rows,
    }
