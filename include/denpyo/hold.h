/* hold.h: who waits for whom: a failed row holds the later rows of its key, or of its topic, until it is resolved. */
#ifndef DENPYO_HOLD_H
#define DENPYO_HOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "denpyo/batch.h"

/*
 * One hold, on a (topic, key), on a partition or on a whole topic. Invariants:
 *  1. blocked: the row waits_for is failed (or rejected, where that holds), overdue, or on its way again; rows with a
 * higher id are held. Of a partition all others are: what librdkafka has of it may still arrive.
 *  2. not blocked ("releasing"): waits_for is resolved; the rows that waited for it come back in id order, and until
 * the last has, newer rows are held too.
 *  3. parked counts held rows in the database, also in ranges, that no open batch has taken; pending those in batches
 * that are not settled; owed the overdue rows of a partition that no claim has taken back.
 *  4. A hold ends when it is releasing and all three counts are 0.
 *  5. A query of parked rows brings the lowest ids of all holds that it lists: its rows pass each of these, also those
 * that waited elsewhere.
 */
struct hold {
    struct topic *topic;
    enum row_scope scope;
    char *key;
    int32_t key_size;
    int32_t partition; /* of SCOPE_PARTITION */
    int64_t waits_for;
    bool blocked;
    uint64_t listed; /* the last query that asked for its waiters */
    size_t parked, pending, owed;
    struct row *row;   /* the row waits_for until its settlement is sent, else NULL */
    struct hold *next; /* in its bucket, or of its topic's partitions */
    struct hold *newer, *older;
};

/* All holds. */
struct holds {
    struct hold **buckets;
    size_t bucket_count, count;
    struct hold *newest;      /* list of all */
    size_t partitions;        /* of them that hold a partition */
    size_t releasing;         /* holds that are not blocked */
    size_t releasing_parked;  /* rows that still wait in them, parked */
    size_t releasing_pending; /* and in batches that are not settled */
    uint64_t queries;         /* of parked rows, so far */
    size_t repoints;          /* rows in trouble that repoint and are not settled */
    bool by_rejected;         /* a rejected row holds its followers until a person decides (set once, at the start) */
};

void holds_init(struct holds *h);
void holds_clear(struct holds *h); /* forgets all holds, for a reload */
void holds_free(struct holds *h);

/* Parked rows are about to be asked for: lists every releasing hold that has some (listed == queries). */
void holds_query(struct holds *h);

/* The hold that keeps an OPEN row from being sent, or NULL. */
struct hold *holds_check(const struct holds *h, const struct row *row);

/* Holds an OPEN row: outcome HELD. */
void holds_keep(struct holds *h, struct hold *hold, struct row *row);

/* A FAILED row, an overdue one, or a REJECTED one that holds (trouble set), with a key, or of topic or partition scope,
 * begins to hold its followers. Made, or repointed to it. A partition for which it stood goes on, unless it is overdue
 * again. */
void holds_block(struct holds *h, struct row *row);

/* An overdue row, behind its partition's hold now, and what no claim has taken back yet. Returns the hold, which lives
 * until then. */
struct hold *holds_owe(const struct row *row);
void holds_repay(struct holds *h, struct hold *hold);

/* The row was dispatched, or closed and its followers go on: whoever waited for it is released. */
void holds_resolve(struct holds *h, const struct row *row);

/* The row was rejected: as holds_resolve, or, where that holds, its key waits for a person. Other keys go on. */
void holds_reject(struct holds *h, struct row *row);

/* A parked row was claimed again: it no longer counts as parked. The last one ends its hold: claimed rows go before
 * newer ones. */
void holds_take(struct holds *h, const struct row *row);

/* The id that a HELD row waits for as its settlement is to record it. */
int64_t holds_blocker(const struct row *row);

/* The row's settlement is being sent: its outcome can no longer change in memory. */
void holds_seal(struct holds *h, const struct row *row);

/* The row was settled: a held one counts as parked from now on. repointed: parked rows that the settlement of a FAILED
 * row turned from failed to held. */
void holds_settle(struct holds *h, struct row *row, size_t repointed);

/* Whom a hold is on, as the database has it: key and key_size (NULL if none) with SCOPE_KEY, partition with
 * SCOPE_PARTITION. */
struct hold_of {
    struct topic *topic;
    enum row_scope scope;
    const char *key;
    int32_t key_size, partition;
};

/* As the database says: `parked` rows wait for `waits_for`, which still is in trouble or not. */
void holds_load(struct holds *h, const struct hold_of *of, int64_t waits_for, bool blocked, size_t parked);

/* The database has none of the rows that releasing holds wait for (somebody removed them): stops waiting. Returns how
 * many. */
size_t holds_drop(struct holds *h);

#endif
