/* claim.c: polls for commits, reads pages of a window, and claims them batch by batch. */
#include "denpyo/claim.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/failpoint.h"
#include "denpyo/kafka.h"
#include "denpyo/log.h"
#include "denpyo/loop.h"
#include "denpyo/pgarray.h"
#include "denpyo/range.h"
#include "denpyo/route.h"

#define LARGE_FACTOR 8         /* a payload above so many times its share of a page ends the page */
#define SLOW_FACTOR 8          /* a page that took too long is asked for again with so many times fewer rows */
#define RELEASE_FIRST 10000    /* fewer released rows than this go before any new page */
#define ABSENT_STALE_US 500000 /* a retried row's topic is looked up again when the last answer is older */
#define DECISION_US 1000000    /* how often it is asked whether a person made a parked row due */
#define NOTHING_DUE_US 1000000 /* look again when a due row could not be claimed */
#define TRICKLE_US 1000000     /* between pages that will be parked, or show that something goes on */
#define TRICKLE_SHARE 10       /* of a page */
#define GROUP_ROWS 100         /* of a partition, when many partitions have rows on their way */
#define WIDE_FACTOR 5          /* so many times inflight.messages at most then */

void claim_init(struct claim *c, const struct claim_options *options, struct ledger *ledger,
                struct publisher *publisher, struct pg *pg) {
    *c = (struct claim){.options = *options,
                        .ledger = ledger,
                        .publisher = publisher,
                        .pg = pg,
                        .row_bytes = 512,
                        .parked_first = true};
    pace_init(&c->pace, options->poll_busy_ms, options->poll_idle_ms, options->poll_linger_ms);
    ledger->ask_next_due = true;
}

void claim_free(struct claim *c) {
    batch_free(c->staged);
    free(c->late);
}

int64_t claim_reset(struct claim *c) {
    int64_t staged = c->staged != NULL ? c->staged->id : 0;
    if (claim_is_retrying(c))
        c->ledger->retry_open--;
    batch_free(c->staged);
    free(c->late);
    c->staged = NULL;
    c->late = NULL;
    c->bounded = c->saw_recovery = false;
    c->parked_first = true;
    c->state = CLAIM_IDLE;
    c->poll_after_us = 0;
    c->ledger->ask_next_due = true;
    return staged;
}

void claim_slow_down(struct claim *c) {
    if (c->state == CLAIM_PAGE)
        c->row_bytes *= SLOW_FACTOR;
}

void claim_stop(struct claim *c) {
    c->is_stopping = true;
}

bool claim_is_retrying(const struct claim *c) {
    return (c->state == CLAIM_PAGE && c->is_retry) || (c->staged != NULL && c->staged->is_retry);
}

bool claim_is_bringing(const struct claim *c) {
    return (c->state == CLAIM_PAGE && !c->is_retry) || (c->staged != NULL && !c->staged->is_retry);
}

bool claim_is_idle(const struct claim *c) {
    return c->state != CLAIM_POLL && c->state != CLAIM_PAGE && c->staged == NULL;
}

/* Payloads, keys and headers above this many bytes come as their length only. */
static int64_t large_bytes(const struct claim *c) {
    int64_t most = kafka_message_max_bytes(c->publisher->kafka);
    int64_t share = LARGE_FACTOR * c->options.batch_bytes / c->limit;
    return c->limit == 1 || share > most ? most : share;
}

static void choose_limit(struct claim *c, int64_t most) {
    int64_t rows = c->options.batch_bytes / (c->row_bytes > 0 ? c->row_bytes : 1);
    c->limit = rows < 1 ? 1 : rows < most ? rows : most;
}

/* ---- the claim itself: insert and commit what was read ---- */

static void add_parked_ids(struct pg_call *call, const struct batch *batch, struct pgarray *ids) {
    if (!batch->is_retry) {
        pg_add_text(call, NULL);
        return;
    }
    pgarray_begin(ids, PGARRAY_INT8, batch->count, 8);
    for (size_t i = 0; i < batch->count; i++)
        pgarray_add_int8(ids, batch->rows[i].id);
    pgarray_end(ids);
    pg_add_binary(call, ids->data, ids->size);
}

/* The topics of the batch with their partition counts at this moment, as recovery will need them. */
static void add_topics(struct pg_call *call, const struct batch *batch, struct pgarray *names, struct pgarray *counts) {
    pgarray_begin(names, PGARRAY_TEXT, 4, 32);
    pgarray_begin(counts, PGARRAY_INT4, 4, 4);
    for (size_t i = 0; i < batch->count; i++) {
        struct topic *topic = batch->rows[i].topic;
        if (topic->index >= 0)
            continue;
        topic->index = 0;
        pgarray_add_bytes(names, topic->name, topic->name_size);
        pgarray_add_int4(counts, topic->partitions);
    }
    for (size_t i = 0; i < batch->count; i++)
        batch->rows[i].topic->index = -1;
    pgarray_end(names);
    pgarray_end(counts);
    pg_add_binary(call, names->data, names->size);
    pg_add_binary(call, counts->data, counts->size);
}

static void on_claimed(void *context, struct pg_result *r);

static void send_claim(struct claim *c) {
    struct batch *batch = c->staged;
    const struct ledger *ledger = c->ledger;
    const struct window_cursor *cursor = &ledger->cursor;
    struct pgarray ids = {0}, names = {0}, counts = {0};
    struct pg_call call = {0};
    pg_add_text(&call, ledger->lease->relay);
    pg_add_int(&call, batch->id);
    pg_add_int(&call, ledger->lease->epoch);
    pg_add_text(&call, cursor->from);
    pg_add_text(&call, cursor->to != NULL ? cursor->to : cursor->from);
    pg_add_int(&call, batch->after_id);
    pg_add_int(&call, batch->upto_id);
    pg_add_int(&call, (int64_t)batch->count);
    pg_add_bool(&call, batch->last_page);
    add_parked_ids(&call, batch, &ids);
    pg_add_text(&call, kafka_cluster_id(c->publisher->kafka));
    add_topics(&call, batch, &names, &counts);
    statements_send(ledger->statements, c->pg, STATEMENT_CLAIM_BATCH, &call, NULL, NULL);
    range_send_take(ledger, c->pg, batch);
    failpoint_pass(FAILPOINT_CLAIM_COMMIT);
    statements_send(ledger->statements, c->pg, STATEMENT_COMMIT, NULL, on_claimed, c);
    pg_sync(c->pg);
    failpoint_pass(FAILPOINT_CLAIM_COMMIT_SENT);
    pgarray_free(&ids);
    pgarray_free(&names);
    pgarray_free(&counts);
}

static void on_claimed(void *context, struct pg_result *r) {
    struct claim *c = context;
    struct ledger *ledger = c->ledger;
    struct batch *batch = c->staged;
    (void)r;
    failpoint_pass(FAILPOINT_CLAIM_COMMITTED);
    c->staged = NULL;
    ledger->newest_id = batch->id;
    if (!batch->is_retry)
        window_advance(&ledger->cursor, batch->upto_id, batch->last_page);
    if (batch->last_page && !batch->is_retry)
        c->bounded = false;
    batch_queue_push(&ledger->open, batch);
    publish_claimed(c->publisher, batch);
}

/* ---- reading a page ---- */

/* Rows of the page that are kept: up to the first of which a part was left out although it may be sent. */
static size_t usable_rows(struct claim *c, const struct pg_result *r, int64_t *deferred_bytes) {
    int64_t most = kafka_message_max_bytes(c->publisher->kafka);
    int rows = pg_rows(r);
    *deferred_bytes = 0;
    for (int i = 0; i < rows; i++) {
        int64_t bytes = pg_is_null(r, i, PAGE_OVERSIZE) ? 0 : llabs(pg_int(r, i, PAGE_OVERSIZE));
        if (bytes > 0 && bytes <= most) {
            *deferred_bytes = bytes;
            return (size_t)i;
        }
    }
    return (size_t)rows;
}

static void learn_size(struct claim *c, const struct batch *batch, int64_t deferred_bytes) {
    if (batch->count > 0)
        c->row_bytes = (c->row_bytes + (int64_t)(batch->bytes / batch->count)) / 2;
    if (deferred_bytes > c->row_bytes)
        c->row_bytes = deferred_bytes;
}

static void give_back(struct claim *c) {
    statements_send(c->ledger->statements, c->pg, STATEMENT_ROLLBACK, NULL, NULL, NULL);
    pg_sync(c->pg);
    if (c->is_retry)
        c->ledger->retry_open--;
}

static bool topics_are_known(struct claim *c, const struct batch *batch) {
    int64_t stale = c->is_retry ? loop_now_us() - ABSENT_STALE_US : 0;
    bool known = true;
    for (size_t i = 0; i < batch->count; i++)
        if (batch->rows[i].topic->is_legal)
            known = route_knows(c->publisher, batch->rows[i].topic, stale) && known;
    return known;
}

/* No row came back although some should have been released: if no settlement was under way, somebody removed them. */
static void drop_vanished(struct claim *c) {
    if (c->seen_settlements != c->ledger->settlements_sent ||
        c->ledger->settlements_sent != c->ledger->settlements_done)
        return;
    size_t rows = holds_drop(&c->publisher->holds);
    if (rows > 0)
        log_event(LOG_ERROR, "held rows vanished from the database; they will not be sent", log_int("rows", rows),
                  LOG_END);
}

/* The page held nothing to claim. */
static void on_empty(struct claim *c, int64_t deferred_bytes) {
    give_back(c);
    if (deferred_bytes > 0) {
        c->row_bytes = deferred_bytes; /* the first row alone is more than a page: smaller pages until it fits */
        return;
    }
    if (c->is_retry) {
        c->parked_first = false;
        if (c->ledger->retry_at_us <= loop_now_us())
            c->ledger->retry_at_us = loop_now_us() + NOTHING_DUE_US;
        overdue_missed(&c->publisher->overdue, loop_now_us());
        drop_vanished(c);
        return;
    }
    window_skip(&c->ledger->cursor);
    c->bounded = false;
}

static bool has_room(const struct claim *c);
static void send_page(struct claim *c, int64_t after_id);

static void on_page(void *context, struct pg_result *r) {
    struct claim *c = context;
    struct ledger *ledger = c->ledger;
    int64_t deferred;
    size_t count = usable_rows(c, r, &deferred);
    assert(c->staged == NULL);
    failpoint_pass(FAILPOINT_CLAIM_PAGE_READ);
    c->state = CLAIM_IDLE;
    if (c->is_stopping) {
        give_back(c);
        return;
    }
    if (count == 0) {
        on_empty(c, deferred);
        return;
    }
    bool is_full = pg_rows(r) >= c->limit;
    struct batch *batch = batch_from_result(r, count, c->is_retry, &c->publisher->topics);
    learn_size(c, batch, deferred);
    if (!topics_are_known(c, batch)) {
        give_back(c);
        batch_free(batch);
        c->state = CLAIM_WAIT;
        c->seen_lookups = c->publisher->lookups;
        return;
    }
    batch->id = ledger->newest_id + 1;
    if (c->is_retry) { /* the cursor stays where it is */
        c->parked_first = c->parked_first && (is_full || deferred > 0 || range_has_rows(batch));
        batch->after_id = batch->upto_id = ledger->cursor.to != NULL ? ledger->cursor.after_id : 0;
        batch->last_page = ledger->cursor.to == NULL;
    } else {
        batch->after_id = ledger->cursor.after_id;
        batch->upto_id = batch->rows[count - 1].id;
        batch->last_page = !is_full && deferred == 0;
        pace_claimed(&c->pace, (int64_t)count);
        if (batch->last_page)
            c->poll_after_us = pace_next_us(&c->pace, c->looked_us, c->limit);
    }
    c->staged = batch;
    send_claim(c);
    if (!c->is_retry && !batch->last_page && has_room(c) && c->trickle_us == 0)
        send_page(c, batch->upto_id);
}

static void send_page(struct claim *c, int64_t after_id) {
    const struct window_cursor *cursor = &c->ledger->cursor;
    struct pg_call call = {0};
    int64_t now = loop_now_us(), share = c->options.batch_rows / TRICKLE_SHARE;
    bool is_stalled = overdue_is_stalled(c->publisher, now);
    c->trickle_us = is_stalled ? now + TRICKLE_US : 0;
    choose_limit(c, is_stalled && share > 0 ? share : c->options.batch_rows);
    pg_add_text(&call, cursor->from);
    pg_add_text(&call, cursor->to);
    pg_add_int(&call, after_id > c->low - 1 ? after_id : c->low - 1);
    pg_add_int(&call, c->high);
    pg_add_int(&call, c->limit);
    pg_add_int(&call, large_bytes(c));
    if (c->late != NULL) {
        pg_add_text(&call, c->late);
        pg_add_int(&call, after_id);
    }
    c->is_retry = false;
    c->state = CLAIM_PAGE;
    ledger_begin(c->ledger, c->pg, true);
    statements_send(c->ledger->statements, c->pg, c->late != NULL ? STATEMENT_CLAIM_MIXED : STATEMENT_CLAIM_PAGE, &call,
                    on_page, c);
    pg_sync(c->pg);
    failpoint_pass(FAILPOINT_CLAIM_PAGE_SENT);
}

/* ---- parked rows ---- */

static void on_next_due(void *context, struct pg_result *r) {
    struct claim *c = context;
    int64_t now = loop_now_us();
    int64_t due = pg_is_null(r, 0, 0) ? INT64_MAX : now + pg_int(r, 0, 0) * 1000;
    if (due != INT64_MAX && due <= now)
        due = now;
    c->ledger->retry_at_us = due;
}

/* Ids of the blockers that are resolved, of those among them that held a whole topic, and of the rows that failed
 * because of an absent topic that is there now. */
static void list_released(struct claim *c, struct pgarray *released, struct pgarray *topics, struct pgarray *wanted) {
    pgarray_begin(released, PGARRAY_INT8, 16, 8);
    pgarray_begin(topics, PGARRAY_INT8, 16, 8);
    pgarray_begin(wanted, PGARRAY_INT8, 16, 8);
    bool cleared = c->seen_cleared != c->publisher->topics_cleared;
    holds_query(&c->publisher->holds);
    for (struct hold *h = c->publisher->holds.newest; h != NULL; h = h->older) {
        if (h->listed == c->publisher->holds.queries)
            pgarray_add_int8(released, h->waits_for);
        if (h->listed == c->publisher->holds.queries && h->scope == SCOPE_TOPIC)
            pgarray_add_int8(topics, h->waits_for);
        if (cleared && h->blocked && h->scope == SCOPE_TOPIC && h->topic->state == TOPIC_READY)
            pgarray_add_int8(wanted, h->waits_for);
    }
    overdue_list(&c->publisher->overdue, wanted);
    pgarray_end(released);
    pgarray_end(topics);
    pgarray_end(wanted);
}

static void send_parked(struct claim *c) {
    struct pgarray released = {0}, topics = {0}, wanted = {0};
    list_released(c, &released, &topics, &wanted);
    choose_limit(c, c->options.batch_rows);
    struct pg_call call = {0};
    pg_add_text(&call, c->ledger->lease->relay);
    pg_add_binary(&call, released.data, released.size);
    pg_add_binary(&call, wanted.data, wanted.size);
    pg_add_int(&call, c->limit);
    pg_add_int(&call, large_bytes(c));
    pg_add_binary(&call, topics.data, topics.size);
    c->seen_cleared = c->publisher->topics_cleared;
    c->seen_settlements = c->ledger->settlements_sent;
    c->is_retry = true;
    c->state = CLAIM_PAGE;
    c->ledger->retry_open++;
    ledger_begin(c->ledger, c->pg, true);
    statements_send(c->ledger->statements, c->pg, STATEMENT_CLAIM_PARKED, &call, on_page, c);
    pg_sync(c->pg);
    failpoint_pass(FAILPOINT_CLAIM_PARKED_SENT);
    pgarray_free(&released);
    pgarray_free(&topics);
    pgarray_free(&wanted);
}

/* One batch of parked rows at a time, and not while who waits for whom is about to change. */
bool claim_wants_parked(const struct claim *c, int64_t now_us) {
    if (c->is_stopping || c->ledger->retry_open > 0 || c->publisher->holds.repoints > 0)
        return false;
    return c->parked_first || c->ledger->retry_at_us <= now_us || c->publisher->holds.releasing_parked > 0 ||
           c->seen_cleared != c->publisher->topics_cleared || overdue_has_results(&c->publisher->overdue, now_us);
}

/* ---- polling ---- */

static void on_poll(void *context, struct pg_result *r) {
    struct claim *c = context;
    struct window_cursor *cursor = &c->ledger->cursor;
    const char *upto = pg_text(r, 0, 0);
    int64_t now = loop_now_us();
    c->state = CLAIM_IDLE;
    if (pg_int(r, 0, 1) != 0) {
        c->saw_recovery = true;
        return;
    }
    bool is_open = cursor->to != NULL;
    bool is_empty = pg_is_null(r, 0, 2) && pg_is_null(r, 0, 4);
    if (!is_open && is_empty) {
        if (!window_is_unchanged(cursor, upto)) {
            window_open(cursor, upto);
            window_skip(cursor);
        }
        c->poll_after_us = pace_silent_us(&c->pace, now);
        return;
    }
    if (!is_open)
        window_open(cursor, upto);
    c->low = pg_is_null(r, 0, 2) ? 1 : pg_int(r, 0, 2);
    c->high = pg_is_null(r, 0, 3) ? 0 : pg_int(r, 0, 3);
    free(c->late);
    c->late = pg_is_null(r, 0, 4) ? NULL : strdup(pg_text(r, 0, 4));
    c->bounded = true;
    pace_heard(&c->pace, now);
    c->poll_after_us = now;
}

/* Also for a window that was loaded half done: its bounds are not on record. */
static void send_poll(struct claim *c) {
    const struct window_cursor *cursor = &c->ledger->cursor;
    bool is_first = strcmp(cursor->from, WINDOW_START) == 0;
    struct pg_call call = {0};
    if (!is_first)
        pg_add_text(&call, cursor->from);
    pg_add_text(&call, cursor->to);
    if (!is_first)
        pg_add_int(&call, cursor->floor_id);
    c->state = CLAIM_POLL;
    c->looked_us = loop_now_us();
    ledger_look(c->ledger, c->pg, is_first ? STATEMENT_WINDOW_FIRST : STATEMENT_WINDOW_POLL, &call, on_poll, c);
}

/* Rows that may be open. Each partition gets a request of its own, which costs the broker much and a row in it little:
 * where many have rows, more are open, so that no request is small. Transactions have more anyway. */
static size_t most_open(const struct claim *c) {
    const struct publisher *p = c->publisher;
    size_t most = (size_t)c->options.inflight_messages, wanted = (p->groups + p->listed) * GROUP_ROWS;
    if (p->is_transactional || wanted <= most)
        return most;
    return wanted < most * WIDE_FACTOR ? wanted : most * WIDE_FACTOR;
}

static bool has_room(const struct claim *c) {
    size_t rows = c->staged != NULL ? c->staged->count : 0;
    size_t bytes = c->ledger->open.bytes + (c->staged != NULL ? c->staged->bytes : 0);
    for (const struct batch *b = c->ledger->open.first; b != NULL; b = b->next)
        rows += b->open;
    return rows < most_open(c) && bytes < (size_t)c->options.inflight_bytes;
}

/* New pages wait while a few released rows are left: they are older, and there would be no end if newer ones kept
 * joining them. At first they also wait for all parked rows that are due: of one key many can be unknown, and only the
 * oldest holds the others. */
static bool releases_first(const struct claim *c) {
    const struct holds *h = &c->publisher->holds;
    size_t left = h->releasing_parked + h->releasing_pending;
    return c->parked_first || (left > 0 && left < RELEASE_FIRST);
}

static bool is_trickling(const struct claim *c, int64_t now_us) {
    return now_us < c->trickle_us && overdue_is_stalled(c->publisher, now_us);
}

void claim_step(struct claim *c, int64_t now_us) {
    if (pg_state(c->pg) != PG_READY || c->saw_recovery)
        return;
    if (c->state == CLAIM_WAIT && c->publisher->lookups != c->seen_lookups)
        c->state = CLAIM_IDLE;
    if (c->state != CLAIM_IDLE || c->staged != NULL)
        return;
    if (c->ledger->ask_next_due || now_us >= c->ask_after_us) {
        struct pg_call call = {0};
        pg_add_text(&call, c->ledger->lease->relay);
        ledger_look(c->ledger, c->pg, STATEMENT_CLAIM_PARKED_NEXT, &call, on_next_due, c);
        c->ledger->ask_next_due = false;
        c->ask_after_us = now_us + DECISION_US;
    }
    /* Not during a transaction: newer rows of a released key may be in its lanes. */
    if (!c->publisher->is_open && claim_wants_parked(c, now_us))
        send_parked(c);
    else if (releases_first(c) || !has_room(c) || is_trickling(c, now_us))
        return;
    else if (c->ledger->cursor.to != NULL && c->bounded)
        send_page(c, c->ledger->cursor.after_id);
    else if (now_us >= c->poll_after_us)
        send_poll(c);
}

int64_t claim_wake_us(const struct claim *c) {
    if (c->state != CLAIM_IDLE || c->staged != NULL)
        return INT64_MAX;
    int64_t retry = c->ledger->retry_open > 0 ? INT64_MAX : c->ledger->retry_at_us;
    int64_t next = c->poll_after_us > c->trickle_us ? c->poll_after_us : c->trickle_us;
    int64_t poll = releases_first(c) || !has_room(c) ? INT64_MAX : next;
    return retry < poll ? retry : poll;
}
