/* hold.c: keeps the order of a key through failures: decides which rows wait, and when they are released. */
#include "denpyo/hold.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/partition.h"

#define BUCKETS 16384

void holds_init(struct holds *h) {
    *h = (struct holds){.bucket_count = BUCKETS, .buckets = calloc(BUCKETS, sizeof *h->buckets)};
    if (h->buckets == NULL)
        abort();
}

static struct hold **bucket_of(const struct holds *h, const struct topic *topic, const char *key, int32_t size) {
    uint32_t hash = partition_murmur2(key, (size_t)size) ^ partition_murmur2(topic->name, topic->name_size);
    return &h->buckets[hash % h->bucket_count];
}

static struct hold *find_key(const struct holds *h, const struct topic *topic, const char *key, int32_t size) {
    if (topic->key_holds == 0 || key == NULL)
        return NULL;
    for (struct hold *hold = *bucket_of(h, topic, key, size); hold != NULL; hold = hold->next)
        if (hold->topic == topic && hold->key_size == size && memcmp(hold->key, key, (size_t)size) == 0)
            return hold;
    return NULL;
}

/* Few partitions of a topic are in trouble at a time. */
static struct hold *find_partition(const struct topic *topic, int32_t partition) {
    struct hold *hold = topic->partition_holds;
    while (hold != NULL && hold->partition != partition)
        hold = hold->next;
    return hold;
}

/* The partition may be another by now, after a look-up or with another number of partitions. */
static struct hold *find_partition_waiting(const struct topic *topic, int64_t waits_for) {
    struct hold *hold = topic->partition_holds;
    while (hold != NULL && hold->waits_for != waits_for)
        hold = hold->next;
    return hold;
}

static struct hold *find(const struct holds *h, const struct hold_of *of) {
    switch (of->scope) {
    case SCOPE_KEY:
        return find_key(h, of->topic, of->key, of->key_size);
    case SCOPE_TOPIC:
        return of->topic->hold;
    case SCOPE_PARTITION:
        return find_partition(of->topic, of->partition);
    }
    return NULL;
}

static struct hold_of of_row(const struct row *row, enum row_scope scope) {
    return (struct hold_of){row->topic, scope, row->key, row->key_size, row->partition};
}

static struct hold *hold_of_row(const struct holds *h, const struct row *row, enum row_scope scope) {
    struct hold_of of = of_row(row, scope);
    return find(h, &of);
}

static void set_blocked(struct holds *h, struct hold *hold, bool blocked) {
    if (hold->blocked == blocked)
        return;
    hold->blocked = blocked;
    if (blocked) {
        h->releasing--;
        h->releasing_parked -= hold->parked;
        h->releasing_pending -= hold->pending;
    } else {
        h->releasing++;
        h->releasing_parked += hold->parked;
        h->releasing_pending += hold->pending;
    }
}

static void add_parked(struct holds *h, struct hold *hold, size_t rows) {
    hold->parked += rows;
    if (!hold->blocked)
        h->releasing_parked += rows;
}

static void link_key(struct holds *h, struct hold *hold, const struct hold_of *of) {
    hold->key = malloc((size_t)of->key_size + 1);
    if (hold->key == NULL)
        abort();
    memcpy(hold->key, of->key, (size_t)of->key_size);
    hold->key_size = of->key_size;
    struct hold **bucket = bucket_of(h, of->topic, of->key, of->key_size);
    hold->next = *bucket;
    *bucket = hold;
    of->topic->key_holds++;
}

static void link_partition(struct holds *h, struct hold *hold) {
    hold->next = hold->topic->partition_holds;
    hold->topic->partition_holds = hold;
    h->partitions++;
}

static struct hold *make(struct holds *h, const struct hold_of *of) {
    struct hold *hold = calloc(1, sizeof *hold);
    if (hold == NULL)
        abort();
    hold->topic = of->topic;
    hold->scope = of->scope;
    hold->partition = of->partition;
    switch (of->scope) {
    case SCOPE_TOPIC:
        of->topic->hold = hold;
        break;
    case SCOPE_PARTITION:
        link_partition(h, hold);
        break;
    case SCOPE_KEY:
        link_key(h, hold, of);
        break;
    }
    hold->listed = UINT64_MAX;
    hold->older = h->newest;
    if (h->newest != NULL)
        h->newest->newer = hold;
    h->newest = hold;
    h->count++;
    h->releasing++; /* until it is said to be blocked */
    return hold;
}

static void unlink_from(struct hold **at, const struct hold *hold) {
    while (*at != hold)
        at = &(*at)->next;
    *at = hold->next;
}

static void end(struct holds *h, struct hold *hold) {
    switch (hold->scope) {
    case SCOPE_TOPIC:
        hold->topic->hold = NULL;
        break;
    case SCOPE_PARTITION:
        unlink_from(&hold->topic->partition_holds, hold);
        h->partitions--;
        break;
    case SCOPE_KEY:
        unlink_from(bucket_of(h, hold->topic, hold->key, hold->key_size), hold);
        hold->topic->key_holds--;
        break;
    }
    if (hold == h->newest)
        h->newest = hold->older;
    else
        hold->newer->older = hold->older;
    if (hold->older != NULL)
        hold->older->newer = hold->newer;
    h->count--;
    set_blocked(h, hold, true); /* so that it counts nowhere */
    free(hold->key);
    free(hold);
}

void holds_clear(struct holds *h) {
    while (h->newest != NULL)
        end(h, h->newest);
    h->repoints = 0;
}

void holds_free(struct holds *h) {
    holds_clear(h);
    free(h->buckets);
    *h = (struct holds){0};
}

/* Ends the hold when it is releasing and nobody waits any more. */
static void end_if_over(struct holds *h, struct hold *hold) {
    if (!hold->blocked && hold->parked == 0 && hold->pending == 0 && hold->owed == 0)
        end(h, hold);
}

struct hold *holds_owe(const struct row *row) {
    struct hold *hold = find_partition(row->topic, row->partition);
    assert(hold != NULL);
    hold->owed++;
    return hold;
}

void holds_repay(struct holds *h, struct hold *hold) {
    assert(hold->owed > 0);
    hold->owed--;
    end_if_over(h, hold);
}

void holds_query(struct holds *h) {
    h->queries++;
    for (struct hold *hold = h->newest; hold != NULL; hold = hold->older)
        if (!hold->blocked && hold->parked + hold->owed > 0)
            hold->listed = h->queries;
}

static bool keeps(const struct holds *h, const struct hold *hold, const struct row *row) {
    if (hold->blocked)
        return hold->scope == SCOPE_PARTITION ? row->id != hold->waits_for : row->id > hold->waits_for;
    return !row->batch->is_retry || hold->listed != h->queries;
}

struct hold *holds_check(const struct holds *h, const struct row *row) {
    struct hold *whole = row->topic->hold;
    if (whole != NULL && keeps(h, whole, row))
        return whole;
    struct hold *part = find_partition(row->topic, row->partition);
    if (part != NULL && keeps(h, part, row))
        return part;
    struct hold *one = find_key(h, row->topic, row->key, row->key_size);
    return one != NULL && keeps(h, one, row) ? one : NULL;
}

static void keep(struct holds *h, struct hold *hold, struct row *row) {
    row->outcome = ROW_HELD;
    row->hold = hold;
    hold->pending++;
    if (!hold->blocked)
        h->releasing_pending++;
}

void holds_keep(struct holds *h, struct hold *hold, struct row *row) {
    batch_close_row(row, ROW_HELD);
    keep(h, hold, row);
}

/* For whom the hold's rows wait in the database: until the settlement of a row that repoints, as before. */
static int64_t recorded_blocker(const struct hold *hold) {
    bool repoints = hold->row != NULL && hold->row->trouble->repoints_from != 0;
    return repoints ? hold->row->trouble->repoints_from : hold->waits_for;
}

int64_t holds_blocker(const struct row *row) {
    return recorded_blocker(row->hold);
}

static void block(struct holds *h, struct row *row) {
    enum row_scope scope = row->trouble->scope;
    if (scope == SCOPE_KEY && row->key == NULL)
        return; /* a NULL key promises no order */
    struct hold_of of = of_row(row, scope);
    struct hold *hold = find(h, &of);
    if (hold == NULL) {
        hold = make(h, &of);
        set_blocked(h, hold, true);
        hold->waits_for = row->id;
        hold->row = row;
        return;
    }
    if (hold->waits_for == row->id) { /* still, or again, before all were released: they wait for it on record */
        set_blocked(h, hold, true);
        hold->row = row;
        return;
    }
    if (hold->blocked && (hold->waits_for < row->id || scope == SCOPE_PARTITION))
        return;
    /* An earlier row takes the hold over; the one that had it, if it is in trouble, waits like the others. */
    row->trouble->repoints_from = hold->waits_for;
    h->repoints++;
    if (hold->blocked && hold->row != NULL) { /* not settled yet */
        struct row_trouble *before = hold->row->trouble;
        row->trouble->repoints_from = recorded_blocker(hold);
        if (before->repoints_from != 0)
            h->repoints--;
        before->repoints_from = 0;
        keep(h, hold, hold->row);
    }
    if (row->trouble->repoints_from == row->id) { /* the one in between never got on record */
        row->trouble->repoints_from = 0;
        h->repoints--;
    }
    set_blocked(h, hold, true);
    hold->waits_for = row->id;
    hold->row = row;
}

static void resolve(struct holds *h, struct hold *hold, const struct row *row) {
    if (hold == NULL || !hold->blocked || hold->waits_for != row->id)
        return;
    set_blocked(h, hold, false);
    hold->row = NULL;
    end_if_over(h, hold);
}

void holds_block(struct holds *h, struct row *row) {
    block(h, row);
    if (row->trouble->scope != SCOPE_PARTITION) /* the partition answers: it need not wait for a row's own trouble */
        resolve(h, find_partition_waiting(row->topic, row->id), row);
}

void holds_resolve(struct holds *h, const struct row *row) {
    if (h->count == 0)
        return;
    resolve(h, row->topic->hold, row);
    resolve(h, find_partition_waiting(row->topic, row->id), row);
    resolve(h, find_key(h, row->topic, row->key, row->key_size), row);
}

void holds_reject(struct holds *h, struct row *row) {
    if (!h->by_rejected || row->key == NULL) {
        holds_resolve(h, row);
        return;
    }
    holds_block(h, row);
    resolve(h, row->topic->hold, row); /* it may have stood for its whole topic before */
}

void holds_take(struct holds *h, const struct row *row) {
    if (row->released_from == 0)
        return;
    struct hold *hold = row->released_scope == SCOPE_PARTITION ? find_partition_waiting(row->topic, row->released_from)
                                                               : hold_of_row(h, row, row->released_scope);
    if (hold == NULL || hold->waits_for != row->released_from || hold->parked == 0)
        return;
    hold->parked--;
    if (!hold->blocked)
        h->releasing_parked--;
    end_if_over(h, hold);
}

static bool may_block(const struct row *row) {
    return row->outcome == ROW_FAILED || row->outcome == ROW_REJECTED || row->is_overdue;
}

void holds_seal(struct holds *h, const struct row *row) {
    struct hold *hold = may_block(row) ? hold_of_row(h, row, row->trouble->scope) : NULL;
    if (hold != NULL && hold->row == row)
        hold->row = NULL;
}

/* What the settlement of a row in trouble turned to held waits from now on. */
static void settle_trouble(struct holds *h, struct row *row, size_t repointed) {
    struct hold *hold = hold_of_row(h, row, row->trouble->scope);
    if (row->trouble->repoints_from != 0)
        h->repoints--;
    if (hold != NULL)
        add_parked(h, hold, repointed);
}

void holds_settle(struct holds *h, struct row *row, size_t repointed) {
    if (may_block(row)) {
        settle_trouble(h, row, repointed);
    } else if (row->outcome == ROW_HELD) {
        assert(row->hold->pending > 0);
        row->hold->pending--;
        if (!row->hold->blocked)
            h->releasing_pending--;
        add_parked(h, row->hold, 1);
    }
}

void holds_load(struct holds *h, const struct hold_of *of, int64_t waits_for, bool blocked, size_t parked) {
    if (of->scope == SCOPE_KEY && of->key == NULL)
        return;
    struct hold *hold = find(h, of);
    if (hold == NULL) {
        hold = make(h, of);
        hold->waits_for = waits_for;
        if (!blocked) /* whoever claimed the batch of parked rows that is open, if there is one, listed it */
            hold->listed = h->queries;
        set_blocked(h, hold, blocked);
    }
    add_parked(h, hold, parked);
    end_if_over(h, hold);
}

size_t holds_drop(struct holds *h) {
    size_t dropped = h->releasing_parked;
    for (struct hold *hold = h->newest; hold != NULL && dropped > 0;) {
        struct hold *older = hold->older;
        if (!hold->blocked) {
            h->releasing_parked -= hold->parked;
            hold->parked = 0;
            end_if_over(h, hold);
        }
        hold = older;
    }
    return dropped;
}
