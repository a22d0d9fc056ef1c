-- Per relay name: who leads, for how long still, and when it was last heard of. One JSON object a row.
select row_to_json(t)
  from (select name, has_lease, holder_info, epoch, version, cluster_id, acquired_at, heartbeat_at,
               condition, condition_since, condition_detail,
               case when has_lease
                    then round(date_part('epoch', lease_expires_at - clock_timestamp())::numeric, 1)
               end as lease_seconds,
               round(date_part('epoch', clock_timestamp() - heartbeat_at)::numeric, 1) as heartbeat_seconds
          from :"schema".leader
         order by name) t;
