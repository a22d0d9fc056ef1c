"""Case 22: the partition of a key is the Java client's own answer, for every kind of key."""
import os
import pathlib
import random
import subprocess

import pytest
from pure import ROOT, Pure

ORACLE = pathlib.Path(__file__).with_name("PartitionOracle.java")


@pytest.fixture(scope="module")
def kafka_libs():
    """The folder of Kafka's jars; one of them is the Java client."""
    folder = os.environ.get("DENPYO_KAFKA_LIBS")
    if not folder:
        command = [ROOT / "deploy" / "devserver", "kafka", "jars"]
        folder = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip().splitlines()[-1]
    assert list(pathlib.Path(folder).glob("kafka-clients-*.jar")), f"no Java client in {folder}"
    return folder


def keys():
    """Empty, each length of tail, text in several scripts, bytes that are no text; repeatable."""
    rng = random.Random(22)
    alphabets = ["abcxyz0189-_.:/ ", "äöüßéèñçøå", "伝票注文顧客番号", "заказклиент", "مرحباطلب", "🧾📦🚚👩‍👩‍👧"]
    yield b""
    yield b"\0"
    yield "e\u0301".encode()
    yield "\u00e9".encode()
    for number in range(300):
        yield str(number * 7919).encode()
    for alphabet in alphabets:
        for length in range(1, 101):
            yield "".join(rng.choices(alphabet, k=length)).encode()
    for length in range(300):
        yield rng.randbytes(length)
    for size in (4095, 65537, 1_000_003):
        yield rng.randbytes(size)


def test_partitions_equal_the_java_client(kafka_libs, tmp_path):
    rng = random.Random(23)
    counts = [1, 2, 3, 6, 8, 12, 50, 1000, 2**31 - 1]
    asked = [(key, rng.choice(counts)) for key in keys()]
    assert len({key for key, _ in asked}) >= 1000
    lines = "".join(f"{key.hex()},{count}\n" for key, count in asked)
    command = ["java", "-cp", f"{kafka_libs}/*", str(ORACLE)]
    answers = subprocess.run(command, input=lines, check=True, capture_output=True, text=True).stdout.split()
    assert len(answers) == len(asked)
    ours = Pure(tmp_path)
    wrong = [
        (key[:40], count, int(java), ours.partition(key, count))
        for (key, count), java in zip(asked, answers)
        if ours.partition(key, count) != int(java)
    ]
    assert not wrong, f"{len(wrong)} of {len(asked)} differ: {wrong[:5]}"
    assert len(set(answers)) > 50
