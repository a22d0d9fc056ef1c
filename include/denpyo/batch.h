/* batch.h: a claim in memory: the rows of one page, what became of each, and the result they borrow from. */
#ifndef DENPYO_BATCH_H
#define DENPYO_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "denpyo/pg.h"
#include "denpyo/row.h"
#include "denpyo/topic.h"

/*
 * A batch. Invariants: rows[0..count) in id order; open = how many of them are OPEN; a retry batch takes parked rows
 * and leaves the cursor where it is.
 */
struct batch {
    int64_t id;
    int64_t after_id, upto_id;
    bool last_page, is_retry;
    bool is_told; /* a mark told which of its rows were committed */
    size_t count, open;
    size_t on_wire; /* overdue rows that librdkafka still has */
    bool is_kept;   /* settled, in memory for those rows only */
    size_t bytes;   /* memory of the result */
    struct row *rows;
    struct pg_result *result;
    struct batch *next;
};

/* Columns of every page query, in this order (schemas/queries/claim_*.sql). */
enum page_column {
    PAGE_ID,
    PAGE_MESSAGE_ID,
    PAGE_TOPIC,
    PAGE_KEY,
    PAGE_KEY_BYTES,
    PAGE_PARTITION,
    PAGE_PAYLOAD,
    PAGE_PAYLOAD_BYTES,
    PAGE_HEADERS,
    PAGE_AVAILABLE, /* only when it is in the future */
    PAGE_OVERSIZE,  /* only when a part was left out (its bytes; negative: not the payload's), or 0: DEFECT_PARTS */
    PAGE_ATTEMPTS,  /* parked rows only, from here on */
    PAGE_WAITS_FOR,
    PAGE_SCOPE, /* what it waited for, as the number of an enum row_scope */
    PAGE_STATE,
    PAGE_RANGE /* the parked range it comes from, if any */
};

/* A batch of the first `count` rows of the result, which it takes over (pg_take), OPEN. Unseen names enter topics. */
struct batch *batch_from_result(struct pg_result *result, size_t count, bool is_retry, struct topics *topics);
void batch_free(struct batch *batch);

/* Settles a row's outcome in memory; the row must be OPEN. */
void batch_close_row(struct row *row, enum row_outcome outcome);

/* Gives up every OPEN row: UNSURE. The lanes must not be used any more. */
void batch_give_up(struct batch *batch);

/* The row's trouble, made when it has none; text is a printf format. */
void batch_set_trouble(struct row *row, enum row_scope scope, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* In the order of their ids. Zero is empty. */
struct batch_queue {
    struct batch *first, *last;
    size_t count, rows, bytes;
};
void batch_queue_push(struct batch_queue *q, struct batch *batch);
struct batch *batch_queue_pop(struct batch_queue *q);

#endif
