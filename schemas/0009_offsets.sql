-- 0009: which message is this record of the topic? Found at once, whoever wrote its receipt.
--
-- A settlement names the stretches of offsets that it has receipts in: 'topic/partition/n' stands for the 1024 offsets from
-- n * 1024 on. The relay writes them with the receipt; where it did not (a relay of before), the index computes them from the arrays. Building
-- it takes 0.3 seconds for each million messages that are settled (5 seconds for each million settlements of one message each):
-- meanwhile receipts, and who asks for them, wait; applications do not.
alter table :"schema".settlement add column stretches text[] collate "C";

-- Everybody may run it (a relay does, when it inserts a settlement): it reads nothing but its arguments.
create function :"schema".receipt_stretches(topic_names text[], topics smallint[], partitions int[], offsets bigint[])
returns text[] language sql immutable parallel safe as $$
    select coalesce(array_agg(topic_names[s.topic] || '/' || s.partition || '/' || s.number), '{}') collate "C"
      from (select distinct r.topic, r.partition, r."offset" >> 10 as number
              from unnest(topics, partitions, offsets) as r (topic, partition, "offset")
             where r."offset" >= 0) s
$$;

-- fastupdate gathers the keys of many small settlements, which most often are the same; the limit (in kB) keeps what is gathered quick to read.
create index settlement_stretches on :"schema".settlement
    using gin ((coalesce(stretches, :"schema".receipt_stretches(topic_names, topics, partitions, offsets) collate "C")))
    with (fastupdate = on, gin_pending_list_limit = 256);

-- The receipt of the message at one place of a topic, pruned or not, found by stretch; where a topic was deleted and made anew, every
-- message that was ever acknowledged there. array_positions looks through a settlement a hundred times as fast as unnest.
create function :"schema".receipt_at(topic text, partition int, "offset" bigint) returns setof :"schema".receipt
language sql stable security definer set search_path = :"schema", pg_temp set enable_seqscan = off as $$
    select s.message_ids[place.n], s.ids[place.n], receipt_at.topic, receipt_at.partition, receipt_at."offset", s.settled_at, s.relay, s.id
      from settlement s
      cross join lateral unnest(array_positions(s.offsets, receipt_at."offset")) as place (n)
     where coalesce(s.stretches, receipt_stretches(s.topic_names, s.topics, s.partitions, s.offsets) collate "C")
           @> array[receipt_at.topic || '/' || receipt_at.partition || '/' || (receipt_at."offset" >> 10)]
       and s.partitions[place.n] = receipt_at.partition and s.topic_names[s.topics[place.n]] = receipt_at.topic
$$;
revoke all on function :"schema".receipt_at(text, int, bigint) from public;

grant execute on function :"schema".receipt_stretches(text[], smallint[], int[], bigint[]) to public;

insert into :"schema".denpyo_migration (version, name) values (9, '0009_offsets');
