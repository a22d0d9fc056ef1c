"""What a new leader asks before it looks anything up costs what is open, not what was ever settled, whatever the statistics say."""

import json

import pytest

from lib.devserver import ROOT

BATCHES, OPEN = 1000, 6
TOPICS = ["a", "b", "c", "d", "e"]
FILL = (
    "insert into outbox.relay (name, epoch, cluster_id) values ('default', 1, 'c')",
    """
insert into outbox.batch (relay, id, epoch, window_from, window_to, after_id, upto_id, row_count, last_page, parked_ids, cluster_id,
                          topic_names, partition_counts, claimed_at)
select 'default', i, 1, '9:9:', '9:9:', i * 40, i * 40 + 40, 40, true, case when mod(i, 7) = 0 then array[i * 40] end, 'c', '{}', '{}',
       timestamptz '2026-01-01' + i * interval '1 ms'
from generate_series(1, %(batches)s) i""",
    """
insert into outbox.settlement (relay, id, settled_at, topic_names, ids, message_ids, topics, partitions, offsets, min_id, max_id)
select 'default', i, timestamptz '2026-01-01' + i * interval '1 ms', %(topics)s, array_agg(i * 40 + j), array_agg(gen_random_uuid()), array_agg(1 + mod(j, 5)),
       array_agg(mod(j, 3)), array_agg(i * 10 + j), i * 40 + 1, i * 40 + 40
from generate_series(1, %(batches)s - %(open)s) i, generate_series(1, 40) j group by i""",
    """
insert into outbox.settlement_topic (relay, batch_id, topic, count, settled_at)
select 'default', i, topic, 8, timestamptz '2026-01-01' + i * interval '1 ms' from generate_series(1, %(batches)s - %(open)s) i, unnest(%(topics)s::text[]) topic""",
    """
insert into outbox.parked (id, relay, message_id, topic, state, claimed_at)
select i, 'default', gen_random_uuid(), 'a', 'requesting', now() from generate_series(1, 2000) i""",
)


@pytest.mark.parametrize("statistics", ["none", "of empty tables", "fresh"])
@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
def test_case_16_where_a_look_up_begins_is_found_by_the_newest_receipts(schema_ready, statistics, plans):
    query = (ROOT / "schemas" / "queries" / "load_tails.sql").read_text().replace(':"schema"', "outbox")
    with schema_ready.connect() as connection:
        for table in ("batch", "settlement", "settlement_topic", "parked"):
            connection.execute(f"alter table outbox.{table} set (autovacuum_enabled = off)")
        if statistics == "of empty tables":
            connection.execute("analyze")
        for statement in FILL:
            connection.execute(statement, {"batches": BATCHES, "open": OPEN, "topics": TOPICS})
        if statistics == "fresh":
            connection.execute("analyze")
        connection.execute(f"set jit = off; set plan_cache_mode = {plans}")
        connection.execute(f"prepare tails (text, bigint, text[]) as {query}")
        call = f"execute tails ('default', {BATCHES - OPEN}, '{{{','.join(TOPICS)}}}')"
        rows = connection.execute(call).fetchall()
        (((answer,),),) = connection.execute(f"explain (analyze, buffers, format json) {call}").fetchall()
    assert len(rows) == len(TOPICS) * 3 + 1, "a start for each partition that has receipts, and a time"
    plan = (answer if isinstance(answer, dict) else json.loads(answer)[0])["Plan"]
    touched = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    print(f"{touched} buffers")
    assert touched < 6000
