"""Which message is this record? From its topic, partition and offset to its receipt, whoever wrote that."""

import pytest
from ledger import Ledger
from lib.wait import wait_until

DIFFERENT = ("select count(*) from outbox.settlement, outbox.receipt_stretches(topic_names, topics, partitions, offsets) computed"
             " where stretches is null or not (stretches @> computed and stretches <@ computed)")


@pytest.mark.parametrize("flags", [(), ("--delivery", "exactly_once", "--transactional-id", "offsets")], ids=["plain", "transactions"])
def test_each_record_of_a_topic_leads_to_its_message(schema_ready, kafka, relay, flags):
    """Transactions leave gaps: the offset of a commit's mark is nobody's."""
    topics = [kafka.create_topic(partitions=2), kafka.create_topic(partitions=2)]
    for topic, rows in zip(topics, (5000, 300)):
        schema_ready.value("with m as (insert into outbox.message (topic, key, payload) select %s, i, i from generate_series(1, %s) i"
                           " returning 1) select count(*) from m", (topic, rows))
    relay(schema_ready, *flags)
    wait_until(lambda: schema_ready.value("select coalesce(sum(count), 0) from outbox.settlement_topic") == 5300, 60, "all receipts")
    assert schema_ready.value(DIFFERENT) == 0, "the relay's rule is another than the index's"
    for topic in topics:
        records = kafka.read_all(topic)
        assert len(records) == (5000 if topic == topics[0] else 300)
        for record in [*records[:3], *records[::250], *records[-3:]]:
            found = schema_ready.rows("select message_id::text, topic, partition, \"offset\" from outbox.receipt_at(%s, %s, %s)",
                                      (topic, record.partition, record.offset))
            assert found == [(record.message_id, topic, record.partition, record.offset)]
        beyond = 2 + max(record.offset for record in records)
        assert schema_ready.rows("select * from outbox.receipt_at(%s, 0, %s)", (topic, beyond)) == []


@pytest.fixture
def outbox(schema_ready):
    with schema_ready.connect() as connection:
        yield connection


def test_receipts_of_a_relay_that_named_no_stretches_are_found_too(outbox):
    """Also without the message; and where a topic was made anew, all that was acknowledged at that place."""
    ledger = Ledger(outbox)
    outbox.execute("insert into outbox.message (topic, payload) select 'orders', 'x' from generate_series(1, 3000)")
    ledger.drain(700)
    assert outbox.execute("select count(*) from outbox.settlement where stretches is not null").fetchone() == (0,)
    row, message_id = outbox.execute("select id, message_id from outbox.message where id = 2345").fetchone()
    outbox.execute("delete from outbox.message")
    at = "select id, message_id from outbox.receipt_at('orders', %s, %s)"
    assert outbox.execute(at, (row % 8, row * 10)).fetchall() == [(row, message_id)]
    for other in ((row % 8, row * 10 + 1), ((row + 1) % 8, row * 10)):
        assert outbox.execute(at, other).fetchall() == []
    outbox.execute("insert into outbox.settlement (relay, id, topic_names, ids, message_ids, topics, partitions, offsets, stretches)"
                   " values ('default', 99, '{mails,orders}', '{9001,9002}', array[gen_random_uuid(), gen_random_uuid()], '{1,2}', %s, %s, %s)",
                   ([row % 8] * 2, [row * 10] * 2, [f"{topic}/{row % 8}/{row * 10 // 1024}" for topic in ("mails", "orders")]))
    assert [found for found, _ in outbox.execute(at + " order by id", (row % 8, row * 10))] == [row, 9002]
