/* test_envelope.c: ids, headers and sizes against a plain printf, a JSON library and a written-out record batch. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/envelope.h"
#include "random.h"

Test(envelope, id_is_the_uuid_in_lower_case) {
    static const unsigned char uuid[16] = {0x01, 0x98, 0xab, 0xcd, 0xef, 0x00, 0x7f, 0xff,
                                           0x80, 0x09, 0x9a, 0xa9, 0x10, 0x32, 0x54, 0x76};
    char id[ENVELOPE_ID_SIZE + 1] = {0};
    envelope_id(uuid, id);
    cr_assert_str_eq(id, "0198abcd-ef00-7fff-8009-9aa910325476");
}

Test(envelope, id_writes_36_characters_for_any_uuid) {
    uint64_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        unsigned char u[16];
        for (int b = 0; b < 16; b++)
            u[b] = (unsigned char)random_next(&seed);
        char expected[ENVELOPE_ID_SIZE + 1], id[ENVELOPE_ID_SIZE + 2];
        snprintf(expected, sizeof expected, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                 u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
        memset(id, '#', sizeof id);
        envelope_id(u, id);
        cr_assert_arr_eq(id, expected, ENVELOPE_ID_SIZE);
        cr_assert_eq(id[ENVELOPE_ID_SIZE], '#', "wrote behind the end");
    }
}

static bool parse(struct envelope_headers *h, const char *json, struct fault *f) {
    return envelope_headers_parse(h, json, strlen(json), f);
}

Test(envelope, headers_keep_order_nulls_and_empty_values) {
    struct envelope_headers h = {0};
    struct fault f = {0};
    cr_assert(parse(&h, "{\"b\": \"\", \"a\": null, \"trace\": \"00-4bf92f3577b34da6\"}", &f), "%s", f.text);
    cr_assert_eq(h.count, 3);
    cr_expect_str_eq(h.items[0].name, "b");
    cr_expect_not_null(h.items[0].value);
    cr_expect_eq(h.items[0].value_size, 0);
    cr_expect_str_eq(h.items[1].name, "a");
    cr_expect_null(h.items[1].value);
    cr_expect_str_eq(h.items[2].name, "trace");
    cr_expect_eq(h.items[2].name_size, 5);
    cr_expect_arr_eq(h.items[2].value, "00-4bf92f3577b34da6", 19);
    cr_expect_eq(h.items[2].value_size, 19);
    cr_assert(parse(&h, "{}", &f));
    cr_expect_eq(h.count, 0);
    envelope_headers_free(&h);
    cr_expect_null(h.items);
}

Test(envelope, headers_decode_every_escape) {
    struct envelope_headers h = {0};
    cr_assert(parse(&h, "{\"\\u00e4\": \"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0001\\u20AC\\ud83d\\ude00\\u0000|\"}", NULL));
    static const char expected[] = "\"\\/\b\f\n\r\t\x01\xe2\x82\xac\xf0\x9f\x98\x80\0|";
    cr_expect_str_eq(h.items[0].name, "\xc3\xa4");
    cr_expect_eq(h.items[0].value_size, sizeof expected - 1);
    cr_expect_arr_eq(h.items[0].value, expected, sizeof expected - 1);
    envelope_headers_free(&h);
}

Test(envelope, headers_that_cannot_be_sent_are_rejected) {
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "null",
        "\"a\"",
        "{\"a\": 1}",
        "{\"a\"}",
        "{\"a\": {}}",
        "{\"a\": true",
        "{\"a\": \"b}",
        "{\"\": \"b\"}",
        "{\"id\": \"b\"}",
        "{\"a\":\"\\u0\"}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\",
        "{\"a\":\"\n\"}",
        "{\"a\":\"b\",}",
        "{\"a\":\"b\"} x",
        "{,}",
        "{\"a\\u0000\":\"b\"}",
        "{\"a\":\"\\udc00\"}",
        "{\"a\":\"\\ud800\"}",
        "{\"a\":\"\\ud800\\u0041\"}",
        "{\"a\":nul",
        "{\"\\u0069d\":null}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct envelope_headers h = {0};
        struct fault f = {0};
        cr_expect_not(parse(&h, bad[i], &f), "accepted: %s", bad[i]);
        cr_expect_eq(f.class, FAULT_REJECT);
        cr_expect_eq(h.count, 0);
        envelope_headers_free(&h);
    }
}

/* What a JSON library thinks: 1 good, 0 bad, -1 no opinion (a repeated name, which jsonb cannot hold). */
static int library_verdict(const char *json, size_t size, json_t **object) {
    json_error_t error;
    *object = json_loadb(json, size, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    if (memchr(json, 0, size) != NULL)
        return 0; /* jansson lets a NUL between two tokens pass, JSON does not */
    if (*object == NULL)
        return json_error_code(&error) == json_error_duplicate_key ? -1 : 0;
    int verdict = json_is_object(*object);
    const char *name;
    json_t *value;
    json_object_foreach(*object, name, value) {
        if (*name == 0 || strcmp(name, "id") == 0 || !(json_is_string(value) || json_is_null(value)))
            verdict = 0;
    }
    return verdict;
}

static void assert_equal(const struct envelope_headers *h, json_t *object, uint64_t seed) {
    cr_assert_eq(h->count, json_object_size(object), "seed %lu", (unsigned long)seed);
    for (size_t i = 0; i < h->count; i++) {
        const struct envelope_header *item = &h->items[i];
        json_t *value = json_object_get(object, item->name);
        cr_assert_not_null(value, "seed %lu", (unsigned long)seed);
        cr_assert_eq(strlen(item->name), item->name_size);
        if (json_is_null(value)) {
            cr_assert_null(item->value);
        } else {
            cr_assert_eq(item->value_size, json_string_length(value), "seed %lu", (unsigned long)seed);
            cr_assert_eq(memcmp(item->value, json_string_value(value), item->value_size), 0);
        }
    }
}

static size_t random_object(uint64_t *state, char *out) {
    static const char *const pieces[] = {"a",        "bc",   "trace-parent", "\\n", "\\u00df",    "\\ud83d\\ude00",
                                         "\xc3\xa4", "\\\\", "\\\"",         " ",   "0123456789", "\xe4\xbc\x9d",
                                         "\\/",      "id"};
    size_t size = (size_t)sprintf(out, "{");
    uint64_t count = random_below(state, 5);
    for (uint64_t i = 0; i < count; i++) {
        size += (size_t)sprintf(out + size, "%s\"%c", i > 0 ? ", " : "", (char)('p' + i));
        for (uint64_t n = random_below(state, 4); n > 0; n--)
            size += (size_t)sprintf(out + size, "%s", pieces[random_below(state, sizeof pieces / sizeof *pieces)]);
        size += (size_t)sprintf(out + size, "\": %s", random_below(state, 4) == 0 ? "null" : "\"");
        if (out[size - 1] != '"')
            continue;
        for (uint64_t n = random_below(state, 9); n > 0; n--)
            size += (size_t)sprintf(out + size, "%s", pieces[random_below(state, sizeof pieces / sizeof *pieces)]);
        size += (size_t)sprintf(out + size, "\"");
    }
    return size + (size_t)sprintf(out + size, "}");
}

/* One ASCII byte changed, added or dropped: broken UTF-8 is the database's business, not JSON's. */
static size_t damage(uint64_t *state, char *json, size_t size) {
    static const char bytes[] = "{}[]\":,\\ud0nul\n\0 i";
    size_t at = random_below(state, size);
    if (json[at] & 0x80)
        return size;
    char byte = bytes[random_below(state, sizeof bytes - 1)];
    switch (random_below(state, 3)) {
    case 0:
        json[at] = byte;
        return size;
    case 1:
        memmove(json + at + 1, json + at, size - at);
        json[at] = byte;
        return size + 1;
    default:
        memmove(json + at, json + at + 1, size - at - 1);
        return size - 1;
    }
}

Test(envelope, headers_agree_with_a_json_library_on_whole_and_damaged_text) {
    struct envelope_headers h = {0};
    int good = 0, bad = 0;
    for (uint64_t seed = 0; seed < 60000; seed++) {
        uint64_t state = seed;
        char text[4096];
        size_t size = random_object(&state, text);
        for (uint64_t n = random_below(&state, 3); n > 0 && size > 1; n--)
            size = damage(&state, text, size);
        char *exact = malloc(size + 1); /* its own allocation, so that sanitizers see a read behind the end */
        memcpy(exact, text, size);
        json_t *object;
        int verdict = library_verdict(exact, size, &object);
        bool parsed = envelope_headers_parse(&h, exact, size, NULL);
        if (verdict >= 0)
            cr_assert_eq(parsed, verdict == 1, "seed %lu: %.*s", (unsigned long)seed, (int)size, text);
        if (verdict == 1)
            assert_equal(&h, object, seed);
        *(verdict == 1 ? &good : &bad) += 1;
        json_decref(object);
        free(exact);
    }
    cr_assert(good > 5000 && bad > 5000, "good %d, bad %d", good, bad);
    envelope_headers_free(&h);
}

Test(envelope, headers_survive_any_bytes) {
    struct envelope_headers h = {0};
    uint64_t state = 7;
    for (int i = 0; i < 100000; i++) {
        size_t size = random_below(&state, 40);
        char *bytes = malloc(size + 1);
        for (size_t b = 0; b < size; b++)
            bytes[b] = "{}\":,\\un\x80\xff\0a"[random_below(&state, 12)];
        if (size > 2)
            memcpy(bytes, "{\"", 2);
        bool parsed = envelope_headers_parse(&h, bytes, size, NULL);
        cr_assert(parsed || h.count == 0);
        free(bytes);
    }
    envelope_headers_free(&h);
}

/* Counted by hand from the format: 61 bytes of batch header, then the record. */
Test(envelope, size_of_the_smallest_record) {
    /* attributes 1, time 1, offset 1, key -1: 1, value -1: 1, header count: 1, "id": 1+2, uuid: 1+36 = 46; its length:
     * 1 */
    cr_assert_eq(envelope_size(-1, -1, NULL), 61 + 1 + 46);
    cr_assert_eq(envelope_size(0, 0, NULL), 61 + 1 + 46);
    cr_assert_eq(envelope_size(3, -1, NULL), 61 + 1 + 46 + 3);
}

Test(envelope, size_counts_the_length_of_lengths) {
    /* 63 is the longest length in one byte, 8191 in two, 1048575 in three */
    cr_assert_eq(envelope_size(-1, 63, NULL), 61 + 2 + 46 + 63);
    cr_assert_eq(envelope_size(-1, 64, NULL), 61 + 2 + 47 + 64);
    cr_assert_eq(envelope_size(-1, 8191, NULL), 61 + 3 + 47 + 8191);
    cr_assert_eq(envelope_size(-1, 8192, NULL), 61 + 3 + 48 + 8192);
    cr_assert_eq(envelope_size(-1, 1048575, NULL), 61 + 4 + 48 + 1048575);
    cr_assert_eq(envelope_size(-1, 1048576, NULL), 61 + 4 + 49 + 1048576);
}

Test(envelope, size_counts_headers) {
    struct envelope_headers h = {0};
    cr_assert(parse(&h, "{\"ab\": \"cde\", \"n\": null}", NULL));
    cr_assert_eq(envelope_size(-1, -1, &h), 61 + 1 + 46 + (1 + 2 + 1 + 3) + (1 + 1 + 1));
    envelope_headers_free(&h);
}

/* An encoder that writes the varints of a record, bit by bit as the format's description says. */
static size_t put_varint(unsigned char *out, int64_t n) {
    uint64_t rest = n < 0 ? 2 * (uint64_t)(-(n + 1)) + 1 : 2 * (uint64_t)n;
    size_t size = 0;
    for (; rest >= 0x80; rest >>= 7)
        out[size++] = (unsigned char)(0x80 | (rest & 0x7f));
    out[size++] = (unsigned char)rest;
    return size;
}

static int64_t counted(int64_t size) {
    unsigned char scratch[10];
    return (int64_t)put_varint(scratch, size) + (size < 0 ? 0 : size);
}

Test(envelope, size_equals_an_encoded_record_for_random_rows) {
    uint64_t state = 3;
    for (int i = 0; i < 20000; i++) {
        struct envelope_header items[200] = {0};
        struct envelope_headers h = {.items = items,
                                     .count = random_below(&state, 3) == 0 ? random_below(&state, 200) : 2};
        int64_t key = (int64_t)random_below(&state, 10000) - 1;
        int64_t value = (int64_t)(random_next(&state) >> (24 + random_below(&state, 40))) - 1;
        int64_t body = 3 + counted(key) + counted(value) + counted((int64_t)h.count + 1) - (int64_t)h.count - 1;
        body += counted(2) + counted(36);
        for (size_t n = 0; n < h.count; n++) {
            items[n].name_size = 1 + random_below(&state, 100);
            items[n].value = random_below(&state, 2) == 0 ? NULL : "";
            items[n].value_size = items[n].value == NULL ? 0 : random_below(&state, 20000);
            body += counted((int64_t)items[n].name_size);
            body += counted(items[n].value == NULL ? -1 : (int64_t)items[n].value_size);
        }
        cr_assert_eq(envelope_size(key, value, &h), 61 + counted(body));
    }
}
