-- The Kafka cluster that this outbox was sent to, if there is one on record.
-- $1 relay
select json_build_object('cluster_id', coalesce(r.cluster_id, newest.cluster_id))
from :"schema".relay r
left join lateral (select b.cluster_id from :"schema".batch b where b.relay = r.name order by b.id desc limit 1) newest on true
where r.name = $1::text
