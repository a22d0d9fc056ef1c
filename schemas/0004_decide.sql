-- 0004: what a person decides about a message that is in trouble: try it again, or never send it.
--
-- Both are for a message that is parked and that no open batch holds. The relay claims such a row under a lock on it, so that a
-- decision comes either before the claim, which then sees it, or after, when it finds the batch and is refused. A running relay notices within
-- about a second: a decided row is due at once.

-- The parked row of a message in one of some states, locked; an error that says why when it is not there to be decided on.
create function :"schema".parked_to_decide(wanted uuid, states text[]) returns :"schema".parked
language plpgsql volatile set search_path = :"schema", pg_temp as $$
declare
    found_row parked;
    now_state text;
    awaited uuid;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'decide in a transaction of isolation level "read committed": another would not see what the relay claims meanwhile';
    end if;
    select p.* into found_row from parked p where p.message_id = wanted and p.state = any (states) for update;
    if found_row.id is null then
        select s.state, p.message_id into now_state, awaited
          from status s left join parked p on p.id = s.waits_for_id and s.state = 'held'
         where s.message_id = wanted;
        raise exception '%', case
            when now_state is null then format('there is no message %s in this outbox', wanted)
            when awaited is not null then format('message %s is held and goes on by itself; decide about message %s, which it waits for',
                                                 wanted, awaited)
            else format('message %s is %s; this is for messages that are %s', wanted, now_state,
                        regexp_replace(array_to_string(states, ', '), ', (\w+)$', ' or \1')) end;
    end if;
    -- A statement of its own, so that it sees the claim that the lock waited for.
    if exists (select from open_batch o where o.relay = found_row.relay and found_row.id = any (o.parked_ids)) then
        raise exception 'message % is being tried right now; decide when that has failed', wanted;
    end if;
    return found_row;
end
$$;

-- Tries a rejected or failed message again, now; its attempts are counted anew. Returns the state it was in.
create function :"schema".retry(message_id uuid) returns text
language plpgsql volatile security definer set search_path = :"schema", pg_temp as $$
declare
    decided parked := parked_to_decide(message_id, array['rejected', 'failed']);
begin
    update parked p set state = 'failed', attempts = 0, next_attempt_at = clock_timestamp() where p.id = decided.id;
    return decided.state;
end
$$;

-- Closes a rejected, failed or delayed message for good: it is not sent, for this reason; who waits for it goes on. Returns the state it
-- was in. The time it is due is how the relay learns of it, and is taken away when it has.
create function :"schema".skip(message_id uuid, reason text) returns text
language plpgsql volatile security definer set search_path = :"schema", pg_temp as $$
declare
    decided parked := parked_to_decide(message_id, array['rejected', 'failed', 'delayed']);
begin
    if coalesce(reason, '') !~ '\S' then
        raise exception 'a message is skipped for a reason: say it';
    end if;
    update parked p
       set state = 'skipped', next_attempt_at = clock_timestamp(),
           error = format('%s (decided by %s%s)', reason, session_user, '; it was ' || decided.state || coalesce(': ' || decided.error, ''))
     where p.id = decided.id;
    return decided.state;
end
$$;

revoke all on function :"schema".parked_to_decide(uuid, text[]), :"schema".retry(uuid), :"schema".skip(uuid, text) from public;

insert into :"schema".denpyo_migration (version, name) values (4, '0004_decide');
