/* batch.c: turns a page that PostgreSQL sent into rows, without copying what they hold. */
#include "denpyo/batch.h"

#include <assert.h>
#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/utf8.h"

/* Of two columns, at most one not null: text or bytea, the same bytes on the wire. */
static const char *either(const struct pg_result *r, int row, int text, int binary, int32_t *size) {
    int bytes;
    const char *value = pg_bytes(r, row, text, &bytes);
    if (value == NULL)
        value = pg_bytes(r, row, binary, &bytes);
    *size = value != NULL ? bytes : -1;
    return value;
}

/* parked rows need an id that is nobody else's. */
static const unsigned char *stand_in_id(struct row *row) {
    if (row->trouble == NULL && (row->trouble = calloc(1, sizeof *row->trouble)) == NULL)
        abort();
    uint64_t number = htobe64((uint64_t)row->id);
    memcpy(row->trouble->stand_in + 8, &number, sizeof number);
    return row->trouble->stand_in;
}

static enum row_defect defect_of(const struct row *row, bool has_parts, bool has_id) {
    return !row->topic->is_legal                    ? DEFECT_TOPIC
           : row->is_explicit && row->partition < 0 ? DEFECT_PARTITION
           : !has_parts                             ? DEFECT_PARTS
           : !has_id                                ? DEFECT_MESSAGE_ID
                                                    : DEFECT_NONE;
}

static void read_row(struct row *row, const struct pg_result *r, int i, bool is_retry, struct topics *topics) {
    int size;
    row->id = pg_int(r, i, PAGE_ID);
    row->message_id = (const unsigned char *)pg_bytes(r, i, PAGE_MESSAGE_ID, &size);
    bool has_id = row->message_id != NULL && size == 16;
    if (!has_id)
        row->message_id = stand_in_id(row);
    const char *name = pg_bytes(r, i, PAGE_TOPIC, &size);
    row->topic = topics_get(topics, name != NULL ? name : "", (size_t)size);
    row->key = either(r, i, PAGE_KEY, PAGE_KEY_BYTES, &row->key_size);
    row->value = either(r, i, PAGE_PAYLOAD, PAGE_PAYLOAD_BYTES, &row->value_size);
    row->headers = pg_bytes(r, i, PAGE_HEADERS, &size);
    row->headers_size = row->headers != NULL ? size : -1;
    row->is_explicit = !pg_is_null(r, i, PAGE_PARTITION);
    row->partition = row->is_explicit ? (int32_t)pg_int(r, i, PAGE_PARTITION) : -1;
    row->available_us = pg_is_null(r, i, PAGE_AVAILABLE) ? 0 : pg_int(r, i, PAGE_AVAILABLE);
    row->oversize = pg_is_null(r, i, PAGE_OVERSIZE) ? 0 : pg_int(r, i, PAGE_OVERSIZE);
    row->defect = defect_of(row, pg_is_null(r, i, PAGE_OVERSIZE) || row->oversize != 0, has_id);
    if (is_retry) {
        row->attempts = (int32_t)pg_int(r, i, PAGE_ATTEMPTS);
        row->released_from = pg_int(r, i, PAGE_WAITS_FOR);
        row->released_scope = (enum row_scope)pg_int(r, i, PAGE_SCOPE);
        row->is_skipped = strcmp(pg_text(r, i, PAGE_STATE), "skipped") == 0;
        row->is_unsure = strcmp(pg_text(r, i, PAGE_STATE), "requesting") == 0;
        row->range_id = pg_is_null(r, i, PAGE_RANGE) ? 0 : pg_int(r, i, PAGE_RANGE);
    }
}

struct batch *batch_from_result(struct pg_result *result, size_t count, bool is_retry, struct topics *topics) {
    struct batch *batch = calloc(1, sizeof *batch);
    if (batch == NULL || (batch->rows = calloc(count + 1, sizeof *batch->rows)) == NULL)
        abort();
    batch->result = pg_take(result);
    batch->bytes = pg_result_bytes(result);
    batch->is_retry = is_retry;
    batch->count = batch->open = count;
    for (size_t i = 0; i < count; i++) {
        read_row(&batch->rows[i], result, (int)i, is_retry, topics);
        batch->rows[i].batch = batch;
    }
    return batch;
}

void batch_free(struct batch *batch) {
    if (batch == NULL)
        return;
    for (size_t i = 0; i < batch->count; i++)
        free(batch->rows[i].trouble);
    free(batch->rows);
    pg_result_free(batch->result);
    free(batch);
}

void batch_close_row(struct row *row, enum row_outcome outcome) {
    assert(row->outcome == ROW_OPEN && outcome != ROW_OPEN && row->batch->open > 0);
    row->outcome = outcome;
    row->batch->open--;
}

void batch_give_up(struct batch *batch) {
    for (size_t i = 0; i < batch->count; i++)
        if (batch->rows[i].outcome == ROW_OPEN)
            batch_close_row(&batch->rows[i], ROW_UNSURE);
}

void batch_set_trouble(struct row *row, enum row_scope scope, const char *code, const char *format, ...) {
    if (row->trouble == NULL && (row->trouble = calloc(1, sizeof *row->trouble)) == NULL)
        abort();
    row->trouble->scope = scope;
    snprintf(row->trouble->code, sizeof row->trouble->code, "%s", code);
    char text[sizeof row->trouble->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    utf8_clean(row->trouble->text, sizeof row->trouble->text, text); /* names in it are the application's, and cut */
}

void batch_queue_push(struct batch_queue *q, struct batch *batch) {
    batch->next = NULL;
    if (q->last != NULL)
        q->last->next = batch;
    else
        q->first = batch;
    q->last = batch;
    q->count++;
    q->rows += batch->count;
    q->bytes += batch->bytes;
}

struct batch *batch_queue_pop(struct batch_queue *q) {
    struct batch *batch = q->first;
    if (batch == NULL)
        return NULL;
    q->first = batch->next;
    if (q->first == NULL)
        q->last = NULL;
    q->count--;
    q->rows -= batch->count;
    q->bytes -= batch->bytes;
    return batch;
}
