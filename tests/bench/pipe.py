"""The raw pipe: psql copies keys and payloads out, kcat produces them; no receipts, no recovery, nothing remembered."""
import resource
import subprocess
import time

from servers import CpuMeter

COPY = "copy (select id, message_id, topic, key, payload from outbox.message order by id) to stdout (format binary)"
QUERY = "copy (select key, payload from outbox.message order by id) to stdout"

# Idempotence, lz4 and Java's partitioner as the relay has them; the other settings are librdkafka's own: larger and
# smaller queues, batches and lingers were tried and none was faster beyond noise.
KCAT = ["-X", "enable.idempotence=true", "-X", "compression.codec=lz4", "-X", "topic.partitioner=murmur2_random"]


def children_cpu_seconds():
    """CPU time of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_pipe(postgres, kafka, database, topic, rows, arguments=()):
    """Publishes all rows; from the start of both programs until the last acknowledgment."""
    meter, client_before = CpuMeter(postgres, kafka), children_cpu_seconds()
    start = time.monotonic()
    psql = subprocess.Popen(["psql", "-XAtq", "-d", postgres.conninfo(database), "-c", QUERY], stdout=subprocess.PIPE)
    kcat = subprocess.Popen(["kcat", "-P", "-q", "-b", kafka.brokers, "-t", topic, "-K", "\t", *KCAT, *arguments],
                            stdin=psql.stdout)
    psql.stdout.close()
    if kcat.wait() != 0 or psql.wait() != 0:
        raise RuntimeError(f"the pipe broke: kcat {kcat.returncode}, psql {psql.returncode}")
    seconds = time.monotonic() - start
    cpu = meter.stop(rows, children_cpu_seconds() - client_before)
    return {"seconds": seconds, "rate": rows / seconds, **cpu}


def run_copy(postgres, kafka, database, rows):
    """What reading alone costs: a binary COPY, in id order, of the columns that a relay needs, to nowhere."""
    meter, client_before, start = CpuMeter(postgres, kafka), children_cpu_seconds(), time.monotonic()
    subprocess.run(["psql", "-XAtq", "-d", postgres.conninfo(database), "-c", COPY], stdout=subprocess.DEVNULL, check=True)
    seconds = time.monotonic() - start
    return {"seconds": seconds, "rate": rows / seconds, **meter.stop(rows, children_cpu_seconds() - client_before)}
