-- The slip: committed before the first produce. Two leaders cannot open the same step: (relay, id) is the primary key.
insert into :"schema".batch (relay, id, epoch, window_from, window_to, after_id, upto_id, row_count, last_page, parked_ids,
                             cluster_id, topic_names, partition_counts)
values ($1::text, $2::bigint, $3::bigint, $4::pg_snapshot, $5::pg_snapshot, $6::bigint, $7::bigint, $8::int, $9::boolean, $10::bigint[],
        $11::text, $12::text[], $13::int[])
