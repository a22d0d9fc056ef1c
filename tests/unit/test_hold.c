/* test_hold.c: rows of a few keys fail, wait, come back and survive crashes at random: their order never breaks. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/hold.h"
#include "denpyo/log.h"
#include "denpyo/outcome.h"
#include "denpyo/publish.h"
#include "random.h"

enum { ROWS = 60, KEYS = 4, LANES = 2, BATCHES = 4000, STEPS = 60000, PAGE = 5 };

/* What the database knows of a row. */
enum state { PENDING, CLAIMED, DISPATCHED, FAILED, HELD, REJECTED, SKIPPING, SKIPPED };
struct stored {
    enum state state;
    enum row_scope scope;
    int64_t waits_for;
    int attempts;
    bool is_due;
};

/* A batch on record; rows as the claim read them. */
struct slip {
    bool is_retry, is_settled;
    size_t count;
    int64_t ids[ROWS];
};

/* A claim of parked rows between its query and its commit. */
struct staged {
    bool is_open;
    size_t count;
    int64_t ids[ROWS];
};

struct world {
    uint64_t random;
    bool holds_rejected; /* on_reject = hold: a person decides, and until then the key waits */
    bool is_mended[ROWS + 1];
    int trouble; /* failures in 100 sends; 0 once everything is to come to an end */
    struct stored rows[ROWS + 1];
    struct slip slips[BATCHES];
    int64_t newest, settled;
    int64_t next_row;
    int64_t latest[KEYS]; /* the highest id sent of each key */
    bool was_sent[ROWS + 1];
    /* memory */
    struct publisher p;
    struct topic *topic;
    struct batch_queue open;
    struct row *in_flight[LANES][ROWS];
    size_t retry_open;
    struct staged staged;
    /* a settlement under way: batches, and what was encoded of each row when it was sent */
    size_t sent;
    struct stored encoded[ROWS + 1];
};

static const char *const names[KEYS] = {NULL, "a", "b", "c"}; /* rows of key 0 have none */
static const unsigned char message_id[16];

static bool chance(struct world *w, uint64_t percent) {
    return random_below(&w->random, 100) < percent;
}

static int key_of(int64_t id) {
    return (int)((uint64_t)id * 2654435761u >> 7) % KEYS;
}

/* What the broker can never accept. */
static bool is_bad(const struct world *w, int64_t id) {
    return id % 13 == 0 && !w->is_mended[id];
}

/* ---- the relay: rows go out ---- */

static void note_sent(struct world *w, const struct row *row) {
    int key = key_of(row->id);
    if (w->was_sent[row->id])
        return;
    w->was_sent[row->id] = true;
    if (key != 0)
        cr_assert_lt(w->latest[key], row->id, "id %" PRId64 " of key %s after %" PRId64, row->id, names[key],
                     w->latest[key]);
    w->latest[key] = row->id;
}

/* As outcome_reject does, without a line in the log. */
static void reject(struct world *w, struct row *row) {
    struct hold *hold = w->holds_rejected ? holds_check(&w->p.holds, row) : NULL;
    if (hold != NULL) {
        publish_hold(&w->p, hold, row);
        return;
    }
    batch_set_trouble(row, SCOPE_KEY, "BAD", "never");
    row->attempts++;
    publish_close(row, ROW_REJECTED);
    holds_reject(&w->p.holds, row);
}

static void fail(struct world *w, struct row *row) {
    outcome_fail(&w->p, row, chance(w, 60) ? SCOPE_KEY : SCOPE_TOPIC, "BAD", "for now");
}

/* As route_row does: some end before they reach a lane. */
static void route(struct world *w, struct batch *batch) {
    for (size_t i = 0; i < batch->count; i++) {
        struct row *row = &batch->rows[i];
        w->topic->in_lanes++;
        if (row->is_skipped) {
            publish_close(row, ROW_SKIPPED);
            holds_resolve(&w->p.holds, row);
        } else if (chance(w, (uint64_t)w->trouble / 4)) {
            fail(w, row);
        } else {
            struct lane *lane = &w->topic->lanes[row->partition];
            queue_push(batch->is_retry ? &lane->retried : &lane->waiting, row);
        }
    }
}

/* As send_group does: each row passes the gate, until librdkafka has no room. */
static void send(struct world *w, struct lane *lane) {
    struct row_queue left = {0};
    uint64_t most = 1 + random_below(&w->random, 4);
    bool full = false;
    struct row_queue group = {0}, *from;
    while (group.count < most && (from = topic_lane_next(lane)) != NULL)
        queue_push(&group, queue_pop(from));
    lane->group_size = 0;
    struct row *row;
    while ((row = queue_pop(&group)) != NULL) {
        struct hold *hold = full ? NULL : holds_check(&w->p.holds, row);
        full = full || (hold == NULL && chance(w, (uint64_t)w->trouble / 3));
        if (full) {
            queue_push(&left, row);
        } else if (hold != NULL) {
            holds_keep(&w->p.holds, hold, row);
            w->topic->in_lanes--;
        } else {
            w->in_flight[lane->partition][lane->group_size++] = row;
        }
    }
    outcome_put_back(lane, &left);
    lane->group_open = lane->group_size;
}

/* All reports of the group are in. */
static void report(struct world *w, struct lane *lane) {
    struct row_queue refused = {0};
    bool good = !chance(w, (uint64_t)w->trouble), bad = false;
    for (size_t i = 0; i < lane->group_size; i++)
        bad = bad || is_bad(w, w->in_flight[lane->partition][i]->id);
    good = good && !bad;
    for (size_t i = 0; i < lane->group_size; i++) {
        struct row *row = w->in_flight[lane->partition][i];
        if (good) {
            note_sent(w, row);
            publish_close(row, ROW_DISPATCHED);
            holds_resolve(&w->p.holds, row);
        } else {
            queue_push(&refused, row);
        }
    }
    lane->group_open = 0;
    if (good)
        return;
    if (lane->group_size == 1 && bad) {
        reject(w, queue_pop(&refused));
    } else if (lane->group_size == 1 || chance(w, 30)) {
        struct row *first = queue_pop(&refused);
        outcome_put_back(lane, &refused);
        outcome_fail(&w->p, first, lane->group_size == 1 && chance(w, 60) ? SCOPE_KEY : SCOPE_TOPIC, "BAD", "for now");
    } else {
        outcome_put_back(lane, &refused);
    }
}

static void step_lane(struct world *w) {
    struct lane *lane = &w->topic->lanes[random_below(&w->random, LANES)];
    if (lane->group_open > 0)
        report(w, lane);
    else
        send(w, lane);
}

/* ---- claims ---- */

static struct batch *make_batch(struct world *w, int64_t id) {
    const struct slip *slip = &w->slips[id];
    struct batch *batch = calloc(1, sizeof *batch);
    cr_assert_not_null(batch);
    batch->rows = calloc(slip->count, sizeof *batch->rows);
    cr_assert_not_null(batch->rows);
    batch->id = id;
    batch->is_retry = slip->is_retry;
    batch->count = batch->open = slip->count;
    for (size_t i = 0; i < slip->count; i++) {
        int64_t row = slip->ids[i];
        const char *name = names[key_of(row)];
        const struct stored *stored = &w->rows[row];
        batch->rows[i] = (struct row){.id = row,
                                      .batch = batch,
                                      .topic = w->topic,
                                      .message_id = message_id,
                                      .key = name,
                                      .key_size = name != NULL ? 1 : -1,
                                      .partition = key_of(row) % LANES,
                                      .released_from = stored->state == HELD ? stored->waits_for : 0,
                                      .released_scope = stored->scope,
                                      .is_skipped = stored->state == SKIPPING,
                                      .attempts = stored->attempts};
    }
    return batch;
}

static void open_batch(struct world *w, const int64_t *ids, size_t count, bool is_retry) {
    struct slip *slip = &w->slips[++w->newest];
    cr_assert_lt(w->newest, BATCHES - 1);
    slip->is_retry = is_retry;
    slip->count = count;
    memcpy(slip->ids, ids, count * sizeof *ids);
    struct batch *batch = make_batch(w, w->newest);
    if (is_retry)
        for (size_t i = 0; i < count; i++)
            holds_take(&w->p.holds, &batch->rows[i]);
    batch_queue_push(&w->open, batch);
    route(w, batch);
}

static void claim_page(struct world *w) {
    int64_t ids[PAGE];
    size_t count = 0, most = 1 + (size_t)random_below(&w->random, PAGE);
    while (count < most && w->next_row <= ROWS) {
        w->rows[w->next_row].state = CLAIMED;
        ids[count++] = w->next_row++;
    }
    if (count > 0)
        open_batch(w, ids, count, false);
}

static bool is_released(const struct world *w, const struct stored *row) {
    for (const struct hold *h = w->p.holds.newest; h != NULL; h = h->older)
        if (h->listed == w->p.holds.queries && h->waits_for == row->waits_for)
            return true;
    return false;
}

/* As claim_parked.sql reads them: what is due and whoever is released, the lowest ids first. */
static void query_parked(struct world *w) {
    struct staged *s = &w->staged;
    size_t most = 1 + (size_t)random_below(&w->random, PAGE);
    s->count = 0;
    holds_query(&w->p.holds);
    for (int64_t id = 1; id <= ROWS && s->count < most; id++) {
        const struct stored *row = &w->rows[id];
        if ((row->state == FAILED && row->is_due) || row->state == SKIPPING ||
            (row->state == HELD && is_released(w, row))) {
            s->ids[s->count++] = id;
        }
    }
    s->is_open = s->count > 0;
    w->retry_open += s->is_open;
}

static void claim_parked(struct world *w) {
    if (w->staged.is_open) {
        w->staged.is_open = false;
        open_batch(w, w->staged.ids, w->staged.count, true);
    } else if (w->retry_open == 0 && w->p.holds.repoints == 0) {
        query_parked(w);
    }
}

/* ---- settlements ---- */

static bool repoints(const struct row *row) {
    return row->trouble != NULL && row->trouble->repoints_from != 0;
}

static bool batch_repoints(const struct batch *batch) {
    for (size_t i = 0; i < batch->count; i++)
        if (repoints(&batch->rows[i]))
            return true;
    return false;
}

static void encode(struct world *w, const struct row *row) {
    static const enum state states[] = {[ROW_DISPATCHED] = DISPATCHED,
                                        [ROW_FAILED] = FAILED,
                                        [ROW_HELD] = HELD,
                                        [ROW_REJECTED] = REJECTED,
                                        [ROW_SKIPPED] = SKIPPED};
    w->encoded[row->id] = (struct stored){.state = states[row->outcome],
                                          .scope = row->outcome == ROW_HELD ? row->hold->scope
                                                   : row->trouble           ? row->trouble->scope
                                                                            : SCOPE_KEY,
                                          .waits_for = row->outcome == ROW_HELD ? holds_blocker(row) : 0,
                                          .attempts = row->attempts};
}

static void send_settlement(struct world *w) {
    for (struct batch *b = w->open.first; b != NULL && b->open == 0; b = b->next) {
        if (w->p.holds.repoints > 0 && w->staged.is_open && batch_repoints(b))
            return;
        for (size_t i = 0; i < b->count; i++) {
            encode(w, &b->rows[i]);
            if (b->rows[i].outcome != ROW_DISPATCHED)
                holds_seal(&w->p.holds, &b->rows[i]);
        }
        w->sent++;
    }
}

static bool is_taken(const struct world *w, int64_t id, int64_t after_batch) {
    for (int64_t b = after_batch + 1; b <= w->newest; b++)
        for (size_t i = 0; i < w->slips[b].count && w->slips[b].is_retry; i++)
            if (w->slips[b].ids[i] == id)
                return true;
    return false;
}

/* As settle_repoint.sql; how many turned from failed to held. */
static size_t repoint(struct world *w, int64_t batch, int64_t from, int64_t to, enum row_scope scope) {
    size_t turned = 0;
    for (int64_t id = 1; id <= ROWS; id++) {
        struct stored *row = &w->rows[id];
        bool is_blocker = row->state == FAILED || (row->state == REJECTED && w->holds_rejected);
        bool turns = id == from && is_blocker && !is_taken(w, id, batch);
        if (!turns && !(row->state == HELD && row->waits_for == from && row->scope == scope))
            continue;
        turned += turns;
        row->state = HELD;
        row->waits_for = to;
        row->scope = scope;
    }
    return turned;
}

static void write_settlement(struct world *w, struct batch *b) {
    for (size_t i = 0; i < b->count; i++)
        w->rows[b->rows[i].id] = w->encoded[b->rows[i].id];
    for (size_t i = 0; i < b->count; i++) {
        struct row *row = &b->rows[i];
        if (repoints(row))
            row->trouble->repointed = repoint(w, b->id, row->trouble->repoints_from, row->id, row->trouble->scope);
    }
    w->settled = b->id;
}

static void commit_settlement(struct world *w) {
    size_t batches = w->sent;
    struct batch *b = w->open.first;
    for (size_t i = 0; i < batches; i++, b = b->next)
        write_settlement(w, b);
    for (; w->sent > 0; w->sent--) {
        b = batch_queue_pop(&w->open);
        for (size_t i = 0; i < b->count; i++)
            holds_settle(&w->p.holds, &b->rows[i], repoints(&b->rows[i]) ? b->rows[i].trouble->repointed : 0);
        w->retry_open -= b->is_retry;
        batch_free(b);
    }
}

/* ---- a crash, and what the next one loads ---- */

static void forget(struct world *w) {
    struct batch *b;
    while ((b = batch_queue_pop(&w->open)) != NULL)
        batch_free(b);
    publish_free(&w->p);
    w->staged.is_open = false;
    w->sent = w->retry_open = 0;
}

static void begin(struct world *w) {
    struct publish_options options = {.retry_initial_ms = 1, .retry_max_ms = 1, .holds_rejected = w->holds_rejected};
    publish_init(&w->p, &options, NULL);
    w->topic = topics_get(&w->p.topics, "t", 1);
    topic_set_partitions(w->topic, LANES, 4);
}

/* As load_holds.sql: the failing rows, and those somebody waits for, with the number of waiters not in open batches. */
static void load_hold(struct world *w, int64_t blocker, enum row_scope scope) {
    const struct stored *row = &w->rows[blocker];
    bool is_blocker = row->state == FAILED || (row->state == REJECTED && w->holds_rejected);
    bool is_other = row->state == HELD && (row->waits_for != blocker || row->scope != scope);
    int64_t first = is_blocker && row->scope == scope ? blocker : 0;
    size_t waiters = 0;
    for (int64_t id = 1; id <= ROWS; id++) {
        if (w->rows[id].state != HELD || w->rows[id].waits_for != blocker || w->rows[id].scope != scope)
            continue;
        first = first == 0 ? id : first;
        waiters += !is_taken(w, id, w->settled);
    }
    const char *key = first == 0 || scope == SCOPE_TOPIC ? NULL : names[key_of(first)];
    if (first != 0)
        holds_load(&w->p.holds, &(struct hold_of){w->topic, scope, key, key != NULL ? 1 : -1, -1}, blocker,
                   is_blocker || is_other || row->state == SKIPPING, waiters);
}

static void crash(struct world *w) {
    forget(w);
    begin(w);
    for (int64_t id = 1; id <= ROWS; id++) {
        load_hold(w, id, SCOPE_KEY);
        load_hold(w, id, SCOPE_TOPIC);
    }
    for (int64_t id = w->settled + 1; id <= w->newest; id++) {
        struct batch *batch = make_batch(w, id);
        w->retry_open += batch->is_retry;
        batch_queue_push(&w->open, batch);
        route(w, batch);
    }
}

/* As outbox.retry() and outbox.skip(): not about a row that is on its way. */
static void decide(struct world *w, int64_t id) {
    struct stored *row = &w->rows[id];
    bool is_open = row->state == REJECTED || (row->state == FAILED && chance(w, 1));
    if (!is_open || is_taken(w, id, w->settled))
        return;
    row->state = chance(w, 50) ? SKIPPING : FAILED;
    row->is_due = true;
    row->attempts = 0;
    w->is_mended[id] = chance(w, 50);
}

/* ---- all together ---- */

static bool is_over(const struct world *w) {
    for (int64_t id = 1; id <= ROWS; id++) {
        const struct stored *row = &w->rows[id];
        if (row->state != DISPATCHED && row->state != SKIPPED && (row->state != REJECTED || w->holds_rejected))
            return false;
    }
    return w->open.count == 0;
}

static void step(struct world *w, uint64_t crashes) {
    uint64_t dice = random_below(&w->random, 100);
    if (dice < 60)
        step_lane(w);
    else if (dice < 70)
        claim_page(w);
    else if (dice < 80)
        claim_parked(w);
    else if (dice < 90 && w->sent == 0)
        send_settlement(w);
    else if (dice < 90)
        commit_settlement(w);
    else if (dice < 92 && w->holds_rejected)
        for (int64_t id = 1; id <= ROWS; id++)
            decide(w, id);
    else if (dice < 98)
        w->rows[1 + random_below(&w->random, ROWS)].is_due = true;
    else if (chance(w, crashes))
        crash(w);
}

static void play(uint64_t seed, uint64_t crashes, bool holds_rejected) {
    struct world *w = calloc(1, sizeof *w);
    cr_assert_not_null(w);
    *w = (struct world){.random = seed, .next_row = 1, .holds_rejected = holds_rejected};
    w->trouble = (int)random_below(&w->random, 60);
    begin(w);
    int steps = 0;
    for (; steps < STEPS && !is_over(w); steps++) {
        if (steps == STEPS / 20)
            w->trouble = 0;
        step(w, steps < STEPS / 20 ? crashes : 0);
    }
    cr_assert(is_over(w), "seed %" PRIu64 ": some rows never end", seed);
    const struct holds *h = &w->p.holds;
    cr_assert(h->count == 0 && h->releasing == 0 && h->releasing_parked == 0 && h->releasing_pending == 0 &&
                  h->repoints == 0,
              "seed %" PRIu64 ": %zu holds are left, %zu releasing, %zu parked, %zu pending, %zu repoints", seed,
              h->count, h->releasing, h->releasing_parked, h->releasing_pending, h->repoints);
    cr_assert(w->topic->in_lanes == 0 && w->topic->hold == NULL && w->topic->key_holds == 0, "seed %" PRIu64, seed);
    forget(w);
    free(w);
}

static void quiet(void) {
    log_setup(LOG_TEXT, LOG_ERROR);
}

Test(hold, order_and_end_through_random_failures_and_crashes, .init = quiet) {
    for (uint64_t seed = 4001; seed <= 8000; seed++) /* 5898 once found a message that waited for itself */
        play(seed, (seed + 1) % 2 * 100, false);
}

Test(hold, order_and_end_where_a_rejected_row_holds_its_key_until_a_person_decides, .init = quiet) {
    for (uint64_t seed = 18001; seed <= 20000; seed++) /* so did 19620 */
        play(seed, seed % 2 * 100, true);
}
