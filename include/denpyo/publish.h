/* publish.h: the way of a row through the gate of its partition: routed, grouped, sent, reported, resolved. */
#ifndef DENPYO_PUBLISH_H
#define DENPYO_PUBLISH_H

#include <stdbool.h>
#include <stdint.h>

#include "denpyo/batch.h"
#include "denpyo/envelope.h"
#include "denpyo/hold.h"
#include "denpyo/kafka.h"
#include "denpyo/kafka_code.h"
#include "denpyo/kafka_lookup.h"
#include "denpyo/overdue.h"
#include "denpyo/topic.h"

struct outcome_table_row;

/* What happens to rows of which nobody can say whether the broker has them. */
enum publish_unknown { PUBLISH_LOOK_UP, PUBLISH_RESEND, PUBLISH_HOLD };

struct publish_options {
    int64_t retry_initial_ms, retry_max_ms;
    int64_t retry_max_attempts; /* of one message, for its own trouble; then it is rejected; 0 = no end */
    bool holds_rejected;        /* a rejected message holds its key until a person decides */
    enum publish_unknown on_unknown;
    int64_t metadata_refresh_ms; /* how often the partitions of known topics are counted again */
    int64_t absent_probe_ms;     /* the same for topics that are absent */
    int lookup_timeout_ms;
    int64_t kept_bytes; /* memory that overdue rows may keep */
    int64_t close_ms;   /* how long a batch waits for a partition that acknowledges nothing */
};

/*
 * The publisher. It owns topics and holds; batches belong to the ledger, their rows are lent to the lanes while OPEN.
 * Invariants (design: a gate per partition):
 *  1. A lane has one group in flight; what the group's rows became decides before the next leaves.
 *  2. A row is checked against the holds immediately before it is handed to librdkafka.
 *  3. in_flight counts overdue rows, too.
 */
struct publisher {
    struct publish_options options;
    struct kafka *kafka; /* set by publish_attach; NULL while there is no producer */
    struct worker *worker;
    struct topics topics;
    struct holds holds;
    struct overdue overdue;
    struct lane *listed_first, *listed_last;
    struct kafka_lookup *lookup;            /* under way, or NULL */
    int64_t lookup_after_us;                /* no look-up before this time */
    int64_t ask_again_us;                   /* when known topics are to be looked up again */
    uint64_t lookups_begun;                 /* look-ups, since start */
    uint64_t lookups;                       /* that came back, since start */
    bool asks_alone;                        /* the last look-up, of many in one request, was not answered */
    size_t wanted;                          /* topics that asked for a look-up */
    size_t changing;                        /* topics whose partition count is to change */
    const struct outcome_table_row *broken; /* why this producer is to be made anew: nothing is sent; or NULL */
    int broken_code;
    bool must_look_up;         /* rows were claimed that may have arrived long ago: load in full, which looks them up */
    const struct topic *stuck; /* deleted, and the producer keeps rows of it for ever: to be made anew; or NULL */
    struct envelope_headers headers;
    struct kafka_header *header_list;
    size_t header_capacity;
    uint32_t seed;
    int topics_cleared;                          /* rises when an absent topic turns ready */
    uint64_t dispatched, failed, rejected, held; /* counters since start */
    size_t in_flight;                            /* rows handed to librdkafka and not reported */
    size_t listed;                               /* lanes in the list */
    size_t groups;                               /* groups of which reports are missing */
    size_t most_groups;                          /* that many may be on their way */
    int64_t gather_since_us;                     /* a turn is free, but waits for others; 0 = it is not so */
    int64_t full_since_us; /* so many are, others wait, and none was answered since; 0 = it is not so */
    /* Exactly once: rows are routed and sent only inside a transaction, and closed when it is committed. */
    bool is_transactional;
    bool is_open, is_ending; /* a transaction is; it is being committed: nothing more is sent in it */
    bool has_failed;         /* a row of it was refused: it is to be aborted */
    size_t acknowledged;     /* rows in it */
};

void publish_init(struct publisher *p, const struct publish_options *options, struct worker *worker);
/* Forgets topics, holds and lanes; no row may be used afterwards. */
void publish_free(struct publisher *p);

/* Takes a producer into use; its reports go to publish_report with the publisher as context. */
void publish_attach(struct publisher *p, struct kafka *kafka);
/* Gives the producer back for closing: no report is taken any more. Rows and topics stay to be settled. */
struct kafka *publish_silence(struct publisher *p);
/* Forgets rows, lanes and holds, and gives the producer back for closing: every batch is to be loaded again. */
struct kafka *publish_detach(struct publisher *p);

/* Routes the rows of a claimed batch to their lanes; some are closed at once (delayed, too large, topic absent). In
 * exactly-once mode only publish_route does so. */
void publish_batch(struct publisher *p, struct batch *batch);
void publish_route(struct publisher *p, struct batch *batch);

/* The same for a batch whose claim is committed in this term, known from its answer or from the ledger: parked rows
 * leave their holds, and what is known of those that were on their way takes effect. Others have to be looked up. */
void publish_claimed(struct publisher *p, struct batch *batch);

/* The transaction is committed: the next may begin. */
void publish_committed(struct publisher *p);
/* What was acknowledged in it is dispatched: rows of the batches up to upto_id. first: the oldest batch. */
void publish_confirm(struct publisher *p, struct batch *first, int64_t upto_id);
/* It was aborted: what was sent in it goes back to its lane, in its order. */
void publish_take_back(struct publisher *p, struct batch *first);

/* Forms and sends what can be sent, starts look-ups that are due. Never blocks. */
void publish_step(struct publisher *p);
/* When publish_step wants to be called although nothing happened. */
int64_t publish_wake_us(const struct publisher *p);

void publish_report(void *publisher, const struct kafka_report *report);

/* For the gate's own modules (route, outcome): a lane has something to send; a row of a lane or backlog is closed. */
void publish_list(struct publisher *p, struct lane *lane);
void publish_close(struct row *row, enum row_outcome outcome);
/* The same for a row that has to wait behind an earlier one. */
void publish_hold(struct publisher *p, struct hold *hold, struct row *row);

#endif
