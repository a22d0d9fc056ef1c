/* rows.c (fuzz): pages as a server might send them, constraint or none: each value of each column any bytes or null. */
#include "../../src/pg.c"
#include "denpyo/batch.h"
#include "denpyo/envelope.h"
#include "denpyo/partition.h"
#include "fuzz.h"

#define COLUMNS (PAGE_STATE + 1)
#define ROWS 8

/* A value is a byte that tells its length (255: null) and the bytes. */
static void set_value(PGresult *result, int row, int column, const uint8_t **at, const uint8_t *end) {
    int size = *at < end ? *(*at)++ : 255;
    if (size == 255) {
        PQsetvalue(result, row, column, NULL, -1);
        return;
    }
    if (size > end - *at)
        size = (int)(end - *at);
    PQsetvalue(result, row, column, (char *)(uintptr_t)*at, size);
    *at += size;
}

static struct pg_result *page_of(const uint8_t *data, size_t size) {
    PGresAttDesc columns[COLUMNS];
    memset(columns, 0, sizeof columns);
    for (int i = 0; i < COLUMNS; i++)
        columns[i].name = "c", columns[i].format = 1;
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    PQsetResultAttrs(result, COLUMNS, columns);
    const uint8_t *end = data + size;
    for (int row = 0; row < ROWS && data < end; row++)
        for (int column = 0; column < COLUMNS; column++)
            set_value(result, row, column, &data, end);
    struct pg_result *page = calloc(1, sizeof *page);
    if (page == NULL)
        abort();
    static bool taken;
    *page = (struct pg_result){.libpq = result, .taken = &taken};
    return page;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct topics topics;
    static struct envelope_headers headers;
    topics_init(&topics);
    struct pg_result *page = page_of(data, size);
    struct batch *batch = batch_from_result(page, (size_t)pg_rows(page), true, &topics);
    for (size_t i = 0; i < batch->count; i++) {
        struct row *row = &batch->rows[i];
        struct fault f = {0};
        char id[ENVELOPE_ID_SIZE];
        envelope_id(row->message_id, id);
        FUZZ_CHECK(row->topic != NULL && strlen(row->topic->name) <= row->topic->name_size);
        if (row->headers_size >= 0 && envelope_headers_parse(&headers, row->headers, (size_t)row->headers_size, &f))
            FUZZ_CHECK(envelope_size(row->key_size, row->value_size, &headers) > 0);
        if (row->key != NULL)
            FUZZ_CHECK(partition_of_key(row->key, (size_t)row->key_size, 12) < 12);
        batch_set_trouble(row, SCOPE_KEY, "CODE", "topic %s", row->topic->name);
    }
    batch_free(batch);
    topics_free(&topics);
    return 0;
}
