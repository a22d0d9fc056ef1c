/* overdue.h: rows whose partition acknowledges nothing: they leave their batches, and get their receipts later. */
#ifndef DENPYO_OVERDUE_H
#define DENPYO_OVERDUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "denpyo/batch.h"
#include "denpyo/kafka.h"
#include "denpyo/pgarray.h"

struct ledger;
struct publisher;

/* What the broker said of an overdue row, until the row is claimed again. */
struct overdue_result {
    int64_t id;
    int64_t offset;
    struct hold *hold; /* that owes it, or NULL */
    int32_t partition;
    enum kafka_delivery delivery;
    bool is_taken;
};

/* A row that cannot be looked up before its partition (INT32_MAX: before every one of its topic) has a leader again. */
struct overdue_wait {
    int64_t id;
    struct topic *topic;
    int32_t partition;
};

/*
 * One dead partition must not keep a batch open. When a group has waited for so long although the cluster answers, its
 * rows are closed as `requesting`, everything else of the partition is held behind the lowest of them, and the batches
 * settle. librdkafka keeps the group: it goes out as it is once the partition is back, in its order. Then
 * the rows are claimed as parked ones are, and what the report said takes the place of a look-up. Invariants:
 *  1. An overdue row is parked as `requesting` without a time: this process knows of it. Whoever loads the ledger in
 *     full, because it does not, makes it due, unless it knows that it still waits for a leader.
 *  2. A batch stays in memory while librdkafka has an overdue row of it. When that is too much, the producer is made
 *     anew: it lets go of them, and they are looked up.
 *  3. A row has a result when its report came and its batch is settled, not before.
 *  4. Until all of them are claimed, the hold of their partition does not end: a page may take only some.
 *
 * The rows that a look-up cannot find because their partition has no leader go the same way: out of their batches, and
 * back as soon as it can be read.
 */
struct overdue {
    int64_t close_us;     /* how long a group may wait */
    int64_t answering_us; /* since when the cluster answers look-ups without a break; 0 = it did not answer the last */
    int64_t answered_us;  /* the last answer */
    int64_t acked_us;     /* the last acknowledgment of whatever partition */
    int64_t next_us;      /* no look at the lanes before this time */
    int64_t ask_us;       /* results are not asked for before this time */
    size_t on_wire;       /* overdue rows without a report */
    struct overdue_result *results;
    size_t count, capacity, taken;
    struct overdue_wait *waits;
    size_t wait_count, wait_capacity;
    size_t listed; /* so many results, sorted by id, were in the last query of parked rows */
};

void overdue_init(struct overdue *o, int64_t close_ms);
/* For a full load: empties the topics, and forgets all but what waits for a leader. To look that up again would find
 * nothing new, and two sets of it would take turns for ever. */
void overdue_renew(struct overdue *o, struct topics *topics);
/* Adds the ids of what waits for a leader. */
void overdue_add_waiting(const struct overdue *o, struct pgarray *ids);
/* Forgets that, too: another relay leads. */
void overdue_clear(struct overdue *o);
void overdue_free(struct overdue *o);

/* The cluster answered a look-up, or did not. One that another broker would have answered does not count. */
void overdue_note_answer(struct overdue *o, bool has_answered, int64_t now_us);

/* Looks for groups that are overdue, now and then, and closes their rows. Not in
 * exactly-once mode: there a transaction waits for all its partitions, as the broker's own end of it does. Never
 * blocks. */
void overdue_step(struct publisher *p, const struct ledger *ledger, int64_t now_us);

/* The row, OPEN and in no lane, may have arrived in this partition (INT32_MAX: in any), which cannot be read now. */
void overdue_await(struct publisher *p, struct row *row, int32_t partition);

/* What a look-up says of a topic: its partitions (< 0: nothing) and which of them have a leader. */
void overdue_note_leaders(struct overdue *o, struct topic *topic, int32_t count, const bool *has_leader);

/* A delivery report of an overdue row. */
void overdue_report(struct overdue *o, struct row *row, const struct kafka_report *report);

/* The batch is settled. True when it has to stay in memory for its overdue rows. */
bool overdue_settled(struct overdue *o, struct batch *batch);

/* Adds the ids of rows that have a result to those that are asked for. */
void overdue_list(struct overdue *o, struct pgarray *wanted);

/* Whether overdue_list has something to ask for. */
bool overdue_has_results(const struct overdue *o, int64_t now_us);

/* Those asked for did not all come: a person may have one locked. They are asked for again a little later. */
void overdue_missed(struct overdue *o, int64_t now_us);

/* A row of a committed claim of parked rows that came back as `requesting`: when its result is known it is closed as
 * dispatched, or to be sent without a look-up. */
void overdue_claimed(struct publisher *p, struct row *row);

/* Nothing is acknowledged any more while partitions are held: new pages would only be parked. */
bool overdue_is_stalled(const struct publisher *p, int64_t now_us);

#endif
