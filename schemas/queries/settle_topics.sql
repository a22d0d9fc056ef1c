-- How many of the batch went out per topic. $1 relay, $2 batch, $3 text[] topics, $4 int[] counts
insert into :"schema".settlement_topic (relay, batch_id, topic, count)
select $1::text, $2::bigint, u.topic, u.count
from unnest($3::text[], $4::int[]) u(topic, count)
