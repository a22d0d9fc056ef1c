/* row.h: one message on its way, and what became of it. */
#ifndef DENPYO_ROW_H
#define DENPYO_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "denpyo/topic.h"

/* What became of a row. OPEN: on its way; a batch with none is settled. UNSURE: given up on its way, or overdue. */
enum row_outcome { ROW_OPEN, ROW_DISPATCHED, ROW_FAILED, ROW_HELD, ROW_REJECTED, ROW_DELAYED, ROW_SKIPPED, ROW_UNSURE };

/* How far a failure reaches: the later rows of its key, of its whole topic, or all of its partition. The numbers are
 * those of the queries. */
enum row_scope { SCOPE_KEY = 0, SCOPE_TOPIC = 1, SCOPE_PARTITION = 2 };

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
    int32_t partition;    /* -1 until chosen, unless the application chose it */
    int64_t offset;       /* DISPATCHED: the broker's; -1 = committed, its place is gone */
    struct hold *hold;    /* HELD: what it waits for; overdue: what owes it */
    int64_t available_us; /* DELAYED: PostgreSQL time (microseconds since 2000-01-01 UTC), else 0 */
    enum row_outcome outcome;
    uint32_t group_limit; /* most rows of a group it may be in, after a refusal in a transaction; 0 = the lane's */
    bool is_unsure;       /* nobody can say whether the broker has it: its report, its state, or a crash */
    bool is_skipped;      /* a person decided that it is not sent: only its followers are to hear of it */
    bool is_sent;         /* librdkafka has it, or had it in the open transaction */
    bool is_acknowledged; /* by the broker, in a transaction that is not committed */
    bool is_marked;       /* a mark says that it was committed in a transaction */
    bool is_overdue;      /* UNSURE, and librdkafka has it or had it: see overdue.h */
    bool is_explicit;     /* the application chose the partition */
    bool is_ranged;       /* HELD: the settlement parks it in a range, not by itself */
    /* So far what every report and every group needs: two lines of a cache. What follows is for trouble. */
    bool is_reported; /* overdue, and its report came */
    bool is_awaiting; /* overdue, because its partition cannot be read */
    int32_t code;     /* the last delivery report's error code */
    int delivery;     /* its report's enum kafka_delivery */
    int32_t attempts; /* made before this one */
    enum row_defect defect;
    uint64_t look_up;      /* the first look-up of its topic that begins after the row came; 0 = it never waited */
    int64_t oversize;      /* > 0: the payload was not read because it has so many bytes; < 0: the key or the headers */
    int64_t released_from; /* a parked row that comes back: the id it waited for, else 0 */
    int64_t range_id;      /* the parked range that it comes back from, else 0 */
    enum row_scope released_scope;
    struct row_trouble *trouble;
};

#endif
