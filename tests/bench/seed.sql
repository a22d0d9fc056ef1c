-- seed.sql: the rows of the benchmark, the same on every machine: about 290 bytes of JSON with a number in it.

create schema bench;

-- The n-th payload. Two thirds of it are hash values in base64 and hexadecimal: lz4 finds little to save.
create function bench.payload(n bigint, key text) returns text language sql immutable parallel safe
return format('{"n":%s,"order":"%s","customer":"%s","note":"%s","total":%s,"items":[{"sku":"%s","quantity":%s},{"sku":"%s","quantity":%s}]}',
    n, md5(n::text), key, translate(encode(sha512(int8send(n)), 'base64'), E'\n', ''), abs(hashint8(n + 7)) % 1000000,
    left(md5((n + 1)::text), 18), abs(hashint8(n + 8)) % 9 + 1, left(md5((n + 2)::text), 18), abs(hashint8(n + 9)) % 9 + 1);

-- Commits `rows` rows numbered from 1, so many a transaction, with keys drawn from `keys`.
create procedure bench.seed(rows bigint, keys int, rows_per_transaction int, topic text) language plpgsql as $$
declare
    first bigint;
begin
    for first in select generate_series(1, rows, rows_per_transaction) loop
        insert into outbox.message (topic, key, payload)
        select seed.topic, k.key, bench.payload(n, k.key)
        from generate_series(first, least(rows, first + rows_per_transaction - 1)) n,
             lateral (select 'customer-' || abs(hashint8(n)::bigint) % keys as key) k
        order by n;
        commit;
    end loop;
end $$;
