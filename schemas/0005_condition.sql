-- 0005: what the leader itself waits for, where SQL can see it: a broker that is away shows in no message's row.
--
-- Written with a renewal of the lease, at once when the condition is another one; null: nothing keeps it from its work. The columns
-- are in no index, so that a renewal stays a HOT update.
alter table :"schema".relay
    add column condition text,
    add column condition_since timestamptz,
    add column condition_detail text;

-- Who leads, for people who may not read the relay's own tables. What a relay said whose lease is over counts no more.
create or replace view :"schema".leader as
select name, holder_info, epoch, lease_expires_at, lease_expires_at > clock_timestamp() as has_lease, heartbeat_at,
       acquired_at, version, cluster_id,
       case when lease_expires_at > clock_timestamp() then condition end as condition,
       case when lease_expires_at > clock_timestamp() then condition_since end as condition_since,
       case when lease_expires_at > clock_timestamp() then condition_detail end as condition_detail
  from :"schema".relay;

-- What a person should look at: what the leader says keeps everything waiting, messages on the wire for over a minute, failing
-- for over five minutes, and prepared transactions older than five minutes (what they inserted stays unseen, and their locks
-- stay, until they are ended).
create or replace view :"schema".stuck as
select s.state as problem, s.id, s.message_id, s.topic, s.requested_at as since, now() - s.requested_at as age,
       coalesce(s.error, 'claimed and not acknowledged: is the relay running, is the broker reachable?') as detail
  from :"schema".status s
 where s.state = 'requesting' and s.requested_at < now() - interval '1 minute'
union all
select s.state, s.id, s.message_id, s.topic, s.first_error_at, now() - s.first_error_at,
       concat_ws(': ', s.error_code, s.error)
  from :"schema".status s
 where s.state = 'failed' and s.first_error_at < now() - interval '5 minutes'
union all
select 'prepared transaction', null, null, null, p.prepared, now() - p.prepared,
       format('%L of %s: commit prepared or roll back', p.gid, p.owner)
  from pg_prepared_xacts p
 where p.database = current_database() and p.prepared < now() - interval '5 minutes'
union all
select l.condition, null, null, null, l.condition_since, clock_timestamp() - l.condition_since, l.condition_detail
  from :"schema".leader l
 where l.condition is not null;

insert into :"schema".denpyo_migration (version, name) values (5, '0005_condition');
