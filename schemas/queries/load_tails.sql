-- Where a look-up of open batches may begin in each partition: after the newest receipt that was written before the oldest of them was claimed.
-- What was acknowledged by then was sent before anything of them. Only the newest receipts of a topic are opened: partitions without one are
-- looked up by time. Receipts of another Kafka cluster, from before the present one was accepted, speak of other offsets.
-- A parked row of unknown outcome was sent when its batch of then was claimed.
-- Each "offset 0" and sub-select keeps the order of the steps, each of which knows the keys that it wants: without statistics, as after a
-- failover, the planner takes tables for empty, and would join all that was ever settled with itself. "is not distinct from" keeps it off an index that
-- knows no time.
-- $1 relay, $2 newest settlement, $3 text[] topics
with opened as materialized (
    select least(min(b.claimed_at), min(unknown.claimed_at)) as claimed_at
    from :"schema".batch b
    left join lateral unnest(b.parked_ids) taken on true
    left join lateral (
        select p.claimed_at from :"schema".parked p where p.id = taken and p.state = 'requesting' offset 0
    ) unknown on true
    where b.relay = $1::text and b.id > $2::bigint
)
select wanted.topic, receipt.partition, max(receipt."offset") + 1
from unnest($3::text[]) wanted(topic)
cross join lateral (
    select st.batch_id from :"schema".settlement_topic st
    where st.topic = wanted.topic and st.relay is not distinct from $1::text and st.settled_at <= (select claimed_at from opened)
    order by st.settled_at desc limit 20
) recent
cross join lateral (
    select s.topic_names, s.topics, s.partitions, s.offsets
    from :"schema".settlement s
    where s.relay = $1::text and s.id = recent.batch_id
      and (select r.cluster_id = b.cluster_id or r.cluster_id is null
           from :"schema".relay r, :"schema".batch b
           where r.name = $1::text and b.relay = $1::text and b.id = recent.batch_id)
    offset 0
) s
cross join lateral unnest(s.topics, s.partitions, s.offsets) receipt(topic, partition, "offset")
where s.topic_names[receipt.topic] = wanted.topic and receipt."offset" >= 0 -- -1: its place was gone already
group by 1, 2
union all
-- when the oldest was claimed, in milliseconds since 1970: a row without a topic
select null, null, (extract(epoch from claimed_at) * 1000)::bigint from opened
