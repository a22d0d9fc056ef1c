-- 0010: what a row is checked for costs a single insert less; what is refused, and the constraint that says so, stay the same.
--
-- PostgreSQL reads and plans a table's CHECK constraints anew for every statement: that was more than half of a one-row insert. A domain's
-- constraints it prepares once a session. So the dear ones, of topic and headers, stand in domains, and the table's own only convert to
-- these. The columns keep their types.
create domain :"schema".topic_name as text
    constraint message_topic_is_a_kafka_name
        check (octet_length(value) between 1 and 249 and value !~ '[^a-zA-Z0-9._-]' and value not in ('.', '..'));
create domain :"schema".header_object as jsonb
    -- strict: a lax path would look inside arrays and find strings there.
    constraint message_headers_are_an_object_of_strings_or_nulls
        check (jsonb_typeof(value) = 'object'
               and not value @? 'strict $.* ? (@.type() != "string" && @.type() != "null")')
    constraint message_headers_have_no_empty_name_and_no_id
        check (not value ?| array['', 'id']);

-- "not valid": rows that are there passed the same conditions, and reading them all again would keep writers waiting. What is left needs
-- the table alone for a moment; behind a lock that is waited for, inserts queue, so it gives up soon: then run "denpyo init" again when no
-- long transaction (a dump, a report) uses the table.
select set_config('lock_timeout', '2s', true);
alter table :"schema".message
    drop constraint message_topic_is_a_kafka_name,
    drop constraint message_headers_are_an_object_of_strings_or_nulls,
    drop constraint message_headers_have_no_empty_name_and_no_id,
    add constraint message_topic_is_a_kafka_name
        check (cast(topic as :"schema".topic_name) is not null) not valid,
    add constraint message_headers_are_an_object_of_strings_or_nulls
        check (headers is null or cast(headers as :"schema".header_object) is not null) not valid;

insert into :"schema".denpyo_migration (version, name) values (10, '0010_checks');
