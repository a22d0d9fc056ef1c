"""Judges what is left when all is quiet: what was lost, invented, reordered, doubled or claimed without truth, and by whose fault."""

from collections import Counter
from contextlib import suppress
from datetime import timezone

from confluent_kafka import KafkaException
from lib.wait import wait_until
from psycopg.rows import dict_row
from verify import verify
from writers import is_ordered
from world import TOPICS

READ_S = 120
OFFSIDE = """
select s.id, s.topic, s.error_code, octet_length(m.payload), s.state from outbox.status s join outbox.message m using (id)
where s.state in ('delayed', 'held', 'requesting', 'failed', 'rejected', 'skipped')
"""
MESSAGE_IDS = "select id, message_id::text from outbox.message where id = any (%s)"
LIVES = """
select r.id, case when b.parked_ids is null then b.claimed_at else m.created_at end, r.settled_at, b.claimed_at, r.topic
from outbox.receipt r join outbox.message m using (id) join outbox.batch b on b.relay = r.relay and b.id = r.batch_id
where r.id = any (%s)
"""
EPOCHS = "select epoch, min(id), max(id) from outbox.batch group by 1 order by 2"
RECEIPT_TIMES = "select extract(epoch from settled_at)::float from outbox.settlement order by 1"
AUDIT = """
select (select count(*) from outbox.message), (select count(*) from outbox.status), (select count(*) from outbox.receipt),
       (select coalesce(sum(count), 0) from outbox.settlement_topic),
       (select count(*) from outbox.batch), (select count(*) from outbox.settlement)
"""
LIFE = {
    "row": "select id, xid, message_id, topic, key, partition, octet_length(payload) as bytes, available_at, created_at"
           " from outbox.message where id = %s",
    "status": "select * from outbox.status where id = %s",
    "batch": """
select b.id, epoch, window_from::text, window_to::text, after_id, upto_id, row_count, last_page, parked_ids is not null as retry,
       claimed_at, s.settled_at from outbox.message m
join outbox.batch b on m.id = any (b.parked_ids) or b.parked_ids is null and m.id > b.after_id and m.id <= b.upto_id
     and pg_visible_in_snapshot(m.xid, b.window_to) and not pg_visible_in_snapshot(m.xid, b.window_from)
left join outbox.settlement s on s.relay = b.relay and s.id = b.id where m.id = %s order by b.id""",
    "receipt": "select * from outbox.receipt where id = %s",
    "parked": "select * from outbox.parked where id = %s",
    "range": "select id, topic, waits_for_id, row_count, min_id, max_id, taken_by, claimed_at, parked_at"
             " from outbox.parked_range where %s = any (ids)",
}


class PatientKafka:
    """A broker whose topics are read as often as it takes until their partitions have leaders that know of it."""

    def __init__(self, kafka):
        self._kafka = kafka

    def partitions(self, topic):
        return self._kafka.partitions(topic)

    def read_all(self, topic, isolation):
        records = []

        def is_read():
            with suppress(KafkaException):
                records.append(self._kafka.read_all(topic, isolation))
            return records

        return wait_until(is_read, READ_S, f"topic {topic} to its end")[0]


class Judgement:
    """
    violations: name -> what offends (ids of rows where it can be). doubles: kind of fault -> permitted second copies of
    messages that were in flight then.
    """

    def __init__(self, world, history):
        self.world, self.history = world, history
        self.kafka = PatientKafka(world.kafka)
        self.isolation = "read_committed" if world.mode == "exactly_once" else "read_uncommitted"
        self.verdict = verify(world.database, self.kafka, list(TOPICS), is_ordered, world.partition_counts, self.isolation)
        self.doubles = Counter()
        with world.database.connect() as connection:
            offside = {row[0]: row[1:] for row in connection.execute(OFFSIDE)}
            asked = set(self.verdict.doubled) | set(self.verdict.missing) | {row[0] for row in self.verdict.false_receipts}
            lives = {row[0]: row[1:] for row in connection.execute(LIVES, (list(asked),))}
            names = dict(connection.execute(MESSAGE_IDS, (list(asked),)).fetchall())
            self.receipt_times = [row[0] for row in connection.execute(RECEIPT_TIMES)]
            states = self._state_troubles(connection)
        self.rejected = len(offside)
        self.resent = {number for number in self.verdict.doubled if names[number] in world.postgres.forgotten_sent}
        self.gone = gone = {number for number, life in lives.items() if self._went_with_its_topic(life)}
        v = self.verdict
        self.violations = {
            "lost": sorted(set(v.missing) - set(offside) - gone),
            "invented": sorted(set(v.invented) - world.postgres.forgotten),
            "reordered": v.disordered,
            "doubled": sorted(n for n in set(v.doubled) - self.resent if not self._excuse(lives.get(n))),
            "false receipts": sorted({row[0] for row in v.false_receipts} - gone),
            "without receipt": sorted(set(v.unreceipted) - set(offside)),
            "altered": v.altered,
            "misplaced": v.misplaced,
            "wrongly rejected": sorted(n for n, row in offside.items() if n not in v.missing or not self._too_large(*row)),
            "false states": states,
        }

    def _too_large(self, topic, code, size, state):
        limit = self.world.squeezed_to
        return state == "rejected" and topic == "squeezed" and limit is not None and size > limit / 2 \
            and code == "MSG_SIZE_TOO_LARGE"

    def _went_with_its_topic(self, life):
        return life[3] == "mortal" and _seconds(life[2]) < self.world.mortal_until

    def _excuse(self, life):
        """Whether a second copy may be there: in at-least-once mode, if the message was in flight when a fault came."""
        if life is None or self.world.mode == "exactly_once":
            return False
        begin, end = map(_seconds, life[:2])
        kinds = [event.kind for event in self.history if event.may_double and event.begin <= end and (event.end or end) >= begin]
        self.doubles.update(set(kinds))
        return bool(kinds)

    def _state_troubles(self, connection):
        messages, stated, receipts, counted, batches, settlements = connection.execute(AUDIT).fetchone()
        troubles = []
        if stated != messages:
            troubles.append(f"outbox.status has {stated} rows for {messages} messages")
        if counted != receipts:
            troubles.append(f"outbox.settlement_topic counts {counted}, there are {receipts} receipts")
        if batches != settlements:
            troubles.append(f"{batches} batches, {settlements} settlements")
        terms = connection.execute(EPOCHS).fetchall()
        for earlier, later in zip(terms, terms[1:]):
            if later[0] <= earlier[0] or later[1] != earlier[2] + 1:
                troubles.append(f"terms overlap: epoch {earlier[0]} has batches {earlier[1]} to {earlier[2]},"
                                f" epoch {later[0]} has {later[1]} to {later[2]}")
        self.terms = len(terms)
        return troubles

    # --- a message's life ---

    def lives(self, most=3):
        """Lines that tell all that is known of the first offenders of each name."""
        copies = {}
        for topic in TOPICS:
            for record in self.kafka.read_all(topic, self.isolation):
                copies.setdefault(record.message_id, []).append(f"{topic}[{record.partition}]@{record.offset}")
        with self.world.database.connect() as connection:
            connection.row_factory = dict_row
            for name, offenders in self.violations.items():
                for offender in offenders[:most]:
                    yield f"{name}: {offender}"
                    for number in _ids_of(offender):
                        yield from _life(connection, number, copies)


def life_of(database, number):
    """Lines about one message, from the database alone."""
    with database.connect() as connection:
        connection.row_factory = dict_row
        yield from _life(connection, number, {})


def _life(connection, number, copies):
    for name, query in LIFE.items():
        for row in connection.execute(query, (number,)):
            yield f"    {name} " + " ".join(f"{column}={_shown(value)}" for column, value in row.items()
                                            if value is not None)
            if name == "row" and copies:
                yield f"    copies {copies.get(str(row['message_id']), 'none')}"


def _shown(value):
    return value.astimezone(timezone.utc).strftime("%H:%M:%S.%f") if hasattr(value, "astimezone") else value


def _ids_of(offender):
    """A row's id, or both of what stands in the wrong order; nothing for texts."""
    if isinstance(offender, tuple):
        return offender[-2:]
    return [offender] if isinstance(offender, int) else []


def _seconds(moment):
    return moment.timestamp()
