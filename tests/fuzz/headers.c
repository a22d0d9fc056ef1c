/* headers.c (fuzz): any bytes as a message's headers, held against a JSON library where that one can judge them. */
#include <jansson.h>

#include "denpyo/envelope.h"
#include "fuzz.h"

static const struct envelope_header *find(const struct envelope_headers *h, const char *name) {
    for (size_t i = 0; i < h->count; i++)
        if (strcmp(h->items[i].name, name) == 0)
            return &h->items[i];
    return NULL;
}

static void check_items(const struct envelope_headers *h, size_t size) {
    size_t bytes = 0;
    for (size_t i = 0; i < h->count; i++) {
        const struct envelope_header *item = &h->items[i];
        FUZZ_CHECK(item->name_size > 0 && strlen(item->name) == item->name_size && strcmp(item->name, "id") != 0);
        bytes += item->name_size + item->value_size;
        if (item->value != NULL && item->value_size > 0)
            FUZZ_CHECK(memchr(item->value, 0, item->value_size + 1) != NULL);
    }
    FUZZ_CHECK(bytes <= size);
    FUZZ_CHECK(envelope_size(-1, -1, h) > (int64_t)bytes);
}

/* What both accept must be the same; what the library accepts as strings and nulls, ours must. */
static void compare(const struct envelope_headers *h, bool accepted, const json_t *tree) {
    const char *key;
    json_t *value;
    bool acceptable = json_is_object(tree);
    json_object_foreach((json_t *)tree, key, value) acceptable =
        acceptable && *key && strcmp(key, "id") != 0 && (json_is_string(value) || json_is_null(value));
    FUZZ_CHECK(accepted == acceptable);
    if (!accepted)
        return;
    FUZZ_CHECK(h->count == json_object_size(tree));
    json_object_foreach((json_t *)tree, key, value) {
        const struct envelope_header *item = find(h, key);
        FUZZ_CHECK(item != NULL && (item->value == NULL) == json_is_null(value));
        if (item->value != NULL)
            FUZZ_CHECK(item->value_size == json_string_length(value) &&
                       memcmp(item->value, json_string_value(value), item->value_size) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct envelope_headers headers; /* reused, as the relay does */
    struct fault f = {0};
    char *exact = malloc(size > 0 ? size : 1); /* no NUL behind it */
    if (exact == NULL)
        abort();
    if (size > 0)
        memcpy(exact, data, size);
    bool accepted = envelope_headers_parse(&headers, exact, size, &f);
    if (accepted)
        check_items(&headers, size);
    else
        FUZZ_CHECK(headers.count == 0 && f.class == FAULT_REJECT && *f.text);
    /* It refuses text that is not UTF-8, a name twice, a NUL in a name; and it passes over NUL bytes between words. */
    bool comparable = memchr(exact, 0, size) == NULL;
    json_t *tree =
        comparable ? json_loadb(exact, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL) : NULL;
    if (tree != NULL)
        compare(&headers, accepted, tree);
    json_decref(tree);
    free(exact);
    return 0;
}
