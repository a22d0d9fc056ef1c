"""Holds what topics contain against the outbox and its receipts: lost, invented, doubled, altered, misplaced, out of order."""

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

MESSAGES = """
select message_id::text, id, topic, coalesce(convert_to(key, 'UTF8'), key_bytes), partition,
       coalesce(convert_to(payload, 'UTF8'), payload_bytes)
from outbox.message where topic = any (%s)
"""
RECEIPTS = 'select message_id::text, id, topic, partition, "offset" from outbox.receipt where topic = any (%s)'


@lru_cache(maxsize=None)
def java_partition(key, partitions):
    """Where the Java client's default partitioner puts a key: murmur2, written from its definition, not from ours."""
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(key)
    whole = len(key) - len(key) % 4
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i:i + 4], "little") * multiplier & mask
        k = (k ^ k >> 24) * multiplier & mask
        h = h * multiplier & mask ^ k
    if whole < len(key):
        h = (h ^ int.from_bytes(key[whole:], "little")) * multiplier & mask
    h = (h ^ h >> 13) * multiplier & mask
    return ((h ^ h >> 15) & 0x7FFFFFFF) % partitions


@dataclass(repr=False)
class Verdict:
    """What was found; empty collections are good news."""

    committed: int = 0
    records: int = 0
    missing: list = field(default_factory=list)  # ids of rows that are in no topic
    invented: list = field(default_factory=list)  # message ids that no row has
    doubled: dict = field(default_factory=dict)  # id -> copies
    altered: list = field(default_factory=list)  # ids whose topic, key or value is not the row's
    misplaced: list = field(default_factory=list)  # ids in a partition that neither the row nor Java would choose
    disordered: list = field(default_factory=list)  # (topic, partition, key, id, lower id that came after it)
    unreceipted: list = field(default_factory=list)  # ids without a receipt
    false_receipts: list = field(default_factory=list)  # receipts that the log does not confirm, or second ones of a row
    late: int = 0  # how often an id came after a higher one of its partition, whatever the key

    def exactly_once(self):
        return self.at_least_once() and not self.doubled

    def at_least_once(self):
        return self.truthful() and not (self.missing or self.unreceipted)

    def truthful(self):
        """As much as must hold at any moment, also while rows are on their way."""
        return not (self.invented or self.altered or self.misplaced or self.disordered or self.false_receipts)

    def __repr__(self):
        lines = [f"{self.committed} rows committed, {self.records} records; {self.late} ids came after a higher one"]
        for name in ("missing", "invented", "doubled", "altered", "misplaced", "disordered", "unreceipted", "false_receipts"):
            found = getattr(self, name)
            some = list(found.items() if isinstance(found, dict) else found)[:5]
            lines.append(f"  {len(found)} {name}" + (f", among them {some}" if found else ""))
        return "\n".join(lines)


def verify(database, kafka, topics, is_ordered=lambda key: True, earlier_counts=None,
           isolation=None):
    """
    Reads the topics to their ends and compares. is_ordered(key): whether the writers of that key (bytes) kept its order.
    earlier_counts: topic -> how many partitions it had before. isolation: what is read, if that is not for `kafka` to say.
    """
    with database.connect() as connection:
        messages = {row[0]: row[1:] for row in connection.execute(MESSAGES, (topics,))}
        receipts = connection.execute(RECEIPTS, (topics,)).fetchall()
    read = [(topic,) if isolation is None else (topic, isolation) for topic in topics]
    records = [record for arguments in read for record in kafka.read_all(*arguments)]
    partitions = {topic: {kafka.partitions(topic), *(earlier_counts or {}).get(topic, ())} for topic in topics}
    verdict = Verdict(len(messages), len(records))
    copies = Counter(record.message_id for record in records)
    verdict.missing = sorted(row[0] for message_id, row in messages.items() if message_id not in copies)
    verdict.doubled = {messages[message_id][0]: n for message_id, n in copies.items() if n > 1 and message_id in messages}
    _compare_records(verdict, messages, records, partitions)
    _compare_order(verdict, messages, records, is_ordered)
    _compare_receipts(verdict, messages, records, receipts)
    return verdict


def _compare_records(verdict, messages, records, partitions):
    for record in records:
        row = messages.get(record.message_id)
        if row is None:
            verdict.invented.append(record.message_id)
            continue
        number, topic, key, partition, value = row
        if (record.topic, record.key, record.value) != (topic, key, value):
            verdict.altered.append(number)
        if partition is not None:
            allowed = {partition}
        elif key is not None:
            allowed = {java_partition(key, count) for count in partitions[topic]}
        else:
            continue
        if record.partition not in allowed:
            verdict.misplaced.append(number)


def _compare_order(verdict, messages, records, is_ordered):
    """First occurrences only: a copy that comes again later is no disorder."""
    seen, newest, highest = set(), {}, Counter()
    for record in records:
        if record.message_id in seen or record.message_id not in messages:
            continue
        seen.add(record.message_id)
        number, lane = messages[record.message_id][0], (record.topic, record.partition)
        verdict.late += number < highest[lane]
        highest[lane] = max(highest[lane], number)
        if record.key is None or not is_ordered(record.key):
            continue
        last = newest.get((*lane, record.key), 0)
        if number < last:
            verdict.disordered.append((*lane, record.key, last, number))
        newest[*lane, record.key] = max(last, number)


def _compare_receipts(verdict, messages, records, receipts):
    log = {(record.topic, record.partition, record.offset): record.message_id for record in records}
    receipted = set()
    for message_id, number, *place in receipts:
        if log.get(tuple(place)) != message_id or message_id in receipted:
            verdict.false_receipts.append((number, *place))
        receipted.add(message_id)
    verdict.unreceipted = sorted(row[0] for message_id, row in messages.items() if message_id not in receipted)
