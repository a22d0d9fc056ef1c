-- What keeps everything waiting, then the ten largest troubles, those of one topic and reason counted together. One JSON object a row.
select row_to_json(t)
  from (select g.*, round(date_part('epoch', clock_timestamp() - g.since)::numeric, 1) as since_seconds
          from (select state as problem, topic, error_code, count(*) as messages, min(first_error_at) as since,
                       (array_agg(message_id order by id))[1] as first_message_id,
                       (array_agg(error order by id))[1] as detail
                  from :"schema".status
                 where state in ('failed', 'rejected')
                 group by state, topic, error_code
                 union all
                select problem, topic, null, count(*), min(since), (array_agg(message_id order by id))[1],
                       (array_agg(detail order by id))[1]
                  from :"schema".stuck
                 where problem <> 'failed'
                 group by problem, topic, case when id is null then detail end) g
         order by g.first_message_id is not null, g.messages desc, g.since
         limit 10) t;
