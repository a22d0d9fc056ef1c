-- Where the outbox lives from now on. What is not known stays as it was.
-- $1 relay, $2 epoch, $3 holder, $4 system identifier, $5 timeline, $6 Kafka cluster
update :"schema".relay
set system_identifier = coalesce($4::bigint, system_identifier), timeline = coalesce($5::int, timeline),
    cluster_id = coalesce($6::text, cluster_id)
where name = $1::text and epoch = $2::bigint and holder = $3::uuid
  and (system_identifier, timeline, cluster_id)
      is distinct from (coalesce($4::bigint, system_identifier), coalesce($5::int, timeline), coalesce($6::text, cluster_id))
