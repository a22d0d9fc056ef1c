-- seed.sql: the rows of the benchmark, the same on every machine: about 290 bytes of JSON with a number in it.

create schema bench;

-- The n-th payload. Two thirds of it are hash values in base64 and hexadecimal: lz4 finds little to save.
create function bench.payload(n bigint, key text) returns text language sql immutable parallel safe
return format('{"n":%s,"order":"%s","customer":"%s","note":"%s","total":%s,"items":[{"sku":"%s","quantity":%s},{"sku":"%s","quantity":%s}]}',
    n, md5(n::text), key, translate(encode(sha512(int8send(n)), 'base64'), E'\n', ''), abs(hashint8(n + 7)) % 1000000,
    left(md5((n + 1)::text), 18), abs(hashint8(n + 8)) % 9 + 1, left(md5((n + 2)::text), 18), abs(hashint8(n + 9)) % 9 + 1);

-- A payload of exactly `size` bytes: its number, then a stretch of noise that hardly repeats within lz4's window.
create function bench.sized_payload(n bigint, size int, noise bytea) returns text language sql immutable parallel safe
return left(format('{"n":%s,"noise":"', n)
            || convert_from(substr(noise, 1 + (n * 104729 % (length(noise) - size))::int, size), 'UTF8'), size - 2) || '"}';

-- Commits `rows` rows numbered from `begin_at`, so many a transaction, with keys drawn from `keys`; spread over `topics` topics
-- (topic-0, topic-1, …) when they are more than one; of `size` bytes when that is not null.
create procedure bench.seed(rows bigint, keys int, rows_per_transaction int, topic text, begin_at bigint default 1,
                            topics int default 1, size int default null) language plpgsql as $$
declare
    first bigint;
    noise bytea;
begin
    select convert_to(string_agg(translate(encode(sha512(int8send(n)), 'base64'), E'\n', ''), '' order by n), 'UTF8') into noise
    from generate_series(1, 30000) n where size is not null;
    for first in select generate_series(begin_at, begin_at + rows - 1, rows_per_transaction) loop
        insert into outbox.message (topic, key, payload)
        select case when topics = 1 then seed.topic else seed.topic || '-' || n % topics end, k.key,
               case when seed.size is null then bench.payload(n, k.key) else bench.sized_payload(n, seed.size, noise) end
        from generate_series(first, least(begin_at + rows - 1, first + rows_per_transaction - 1)) n,
             lateral (select 'customer-' || abs(hashint8(n)::bigint) % keys as key) k
        order by n;
        commit;
    end loop;
end $$;
