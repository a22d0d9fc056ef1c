/* batch.h: a claim in memory: the rows of one page, what became of each, and the result they borrow from. */
#ifndef DENPYO_BATCH_H
#define DENPYO_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "denpyo/pg.h"
#include "denpyo/topic.h"

/* OPEN is on its way; a batch can be settled when none of its rows is. UNSURE: given up while it was on its way. */
enum row_outcome { ROW_OPEN, ROW_DISPATCHED, ROW_FAILED, ROW_HELD, ROW_REJECTED, ROW_DELAYED, ROW_SKIPPED, ROW_UNSURE };

/* How far a failure reaches: the later rows of its key, or of its whole topic. */
enum row_scope { SCOPE_KEY, SCOPE_TOPIC };

/* What no message can have; only a dropped constraint lets it in. PARTS: both keys, or not exactly one of payload,
 * payload_bytes and tombstone. */
enum row_defect { DEFECT_NONE, DEFECT_TOPIC, DEFECT_PARTITION, DEFECT_PARTS, DEFECT_MESSAGE_ID };

/* Why a row failed or was rejected; the batch owns it. */
struct row_trouble {
    enum row_scope scope;
    int64_t delay_ms;           /* FAILED: until the next attempt */
    int64_t repoints_from;      /* FAILED: rows that wait for this id now wait for this row; 0 = none */
    size_t repointed;           /* how many parked rows that turned from failed to held */
    unsigned char stand_in[16]; /* of a row without a message id, which only a dropped constraint lets in */
    char code[40];
    char text[300];
};

/* One message on its way. Pointers borrow from the batch's result. Sizes are in bytes, -1 for NULL. */
struct row {
    int64_t id;
    struct batch *batch;
    struct topic *topic;
    struct row *next;                /* in a queue of a lane, of a topic's backlog, or of a hold */
    const unsigned char *message_id; /* 16 bytes */
    const char *key, *value, *headers;
    int32_t key_size, value_size, headers_size;
    int32_t partition;     /* -1 until chosen, unless the application chose it */
    int64_t offset;        /* DISPATCHED: the broker's; -1 = committed, its place is gone */
    int64_t oversize;      /* > 0: the payload was not read because it has so many bytes; < 0: the key or the headers */
    int64_t available_us;  /* DELAYED: PostgreSQL time (microseconds since 2000-01-01 UTC), else 0 */
    int64_t released_from; /* a parked row that comes back: the id it waited for, else 0 */
    int64_t range_id;      /* the parked range that it comes back from, else 0 */
    enum row_scope released_scope;
    int32_t attempts;     /* made before this one */
    int32_t code;         /* the last delivery report's error code */
    uint32_t group_limit; /* most rows of a group it may be in, after a refusal in a transaction; 0 = the lane's */
    uint64_t look_up;     /* the first look-up of its topic that begins after the row came; 0 = it never waited */
    enum row_defect defect;
    bool is_unsure;       /* nobody can say whether the broker has it: its report, its state, or a crash */
    bool is_skipped;      /* a person decided that it is not sent: only its followers are to hear of it */
    bool is_sent;         /* librdkafka has it, or had it in the open transaction */
    bool is_acknowledged; /* by the broker, in a transaction that is not committed */
    bool is_marked;       /* a mark says that it was committed in a transaction */
    bool is_explicit;     /* the application chose the partition */
    bool is_ranged;       /* HELD: the settlement parks it in a range, not by itself */
    enum row_outcome outcome;
    struct hold *hold; /* HELD: what it waits for */
    struct row_trouble *trouble;
};

/* A batch. Invariants: rows[0..count) in id order; open = how many of them are OPEN; a retry batch takes parked rows
 * and leaves the cursor where it is. */
struct batch {
    int64_t id;
    int64_t after_id, upto_id;
    bool last_page, is_retry;
    bool is_told;              /* a mark told which of its rows were committed */
    size_t count, open, bytes; /* bytes: memory of the result */
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
    PAGE_SCOPE, /* whether it waited for its topic */
    PAGE_STATE,
    PAGE_RANGE /* the parked range it comes from, if any */
};

/* A batch of the first `count` rows of the result, which it takes over (pg_take), OPEN. New topics enter `topics`. */
struct batch *batch_from_result(struct pg_result *result, size_t count, bool is_retry, struct topics *topics);
void batch_free(struct batch *batch);

/* Settles a row's outcome in memory; the row must be OPEN. */
void batch_close_row(struct row *row, enum row_outcome outcome);
/* Gives up every OPEN row of the batch: UNSURE. The lanes must not be used any more. */
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
