-- The receipt of a batch: what the broker acknowledged, with partition and offset; $11: the stretches of offsets that these lie in.
insert into :"schema".settlement (relay, id, topic_names, ids, message_ids, topics, partitions, offsets, min_id, max_id, stretches)
values ($1::text, $2::bigint, $3::text[], $4::bigint[], $5::uuid[], $6::smallint[], $7::int[], $8::bigint[], $9::bigint, $10::bigint,
        $11::text[])
