/* load.c: reloads the cursor, the open batches and the holds, so that memory and ledger agree. */
#include "denpyo/load.h"

#include <stdlib.h>
#include <string.h>

#include "denpyo/failpoint.h"
#include "denpyo/kafka.h"
#include "denpyo/log.h"

#define DENSE_FACTOR                                                                                                   \
    4 /* a page that spans at most so many ids a row, and the margin, is read along the primary key                    \
       */
#define DENSE_MARGIN 1000

void load_init(struct load *l, struct ledger *ledger, struct publisher *publisher, struct settle *settle,
               struct reconcile *reconcile, struct identity *identity, struct pg *pg) {
    *l = (struct load){.ledger = ledger,
                       .publisher = publisher,
                       .settle = settle,
                       .reconcile = reconcile,
                       .identity = identity,
                       .pg = pg};
}

static void forget_batches(struct load *l) {
    for (size_t i = 0; i < l->count; i++) {
        free(l->batches[i].from);
        free(l->batches[i].to);
        batch_free(l->batches[i].batch);
    }
    free(l->batches);
    l->batches = NULL;
    l->count = l->read = 0;
}

void load_free(struct load *l) {
    forget_batches(l);
}

void load_reset(struct load *l) {
    reconcile_reset(l->reconcile);
    identity_reset(l->identity);
    forget_batches(l);
    l->state = LOAD_IDLE;
    l->saw_recovery = false;
}

static char *copy(const char *text) {
    char *out = strdup(text);
    if (out == NULL)
        abort();
    return out;
}

/* ---- last step: the batches go on their way ---- */

static void finish(struct load *l) {
    struct ledger *ledger = l->ledger;
    for (size_t i = 0; i < l->count; i++) {
        struct load_batch *b = &l->batches[i];
        struct batch *batch = b->batch;
        b->batch = NULL;
        batch->after_id = b->after_id;
        batch->upto_id = b->upto_id;
        batch->last_page = b->last_page;
        if ((int64_t)batch->count < b->row_count)
            log_event(LOG_ERROR, "rows of an open batch were removed from the outbox; the others go on",
                      log_int("batch", b->id), log_int("claimed", b->row_count), log_int("left", (int64_t)batch->count),
                      LOG_END);
        if (batch->is_retry)
            ledger->retry_open++;
        ledger->newest_id = b->id;
        batch_queue_push(&ledger->open, batch);
        if (l->is_full)
            publish_batch(l->publisher, batch);
        else
            publish_claimed(l->publisher, batch);
    }
    if (l->count > 0)
        log_event(LOG_INFO, "open batches go on", log_int("batches", (int64_t)l->count),
                  log_int("rows", (int64_t)ledger->open.rows), LOG_END);
    forget_batches(l);
    l->state = LOAD_DONE;
    failpoint_pass(FAILPOINT_LOAD_DONE);
}

/* ---- what arrived ---- */

static void send_lookup(struct load *l) {
    struct batch *batches[l->count + 1];
    for (size_t i = 0; i < l->count; i++)
        batches[i] = l->batches[i].batch;
    reconcile_start(l->reconcile, batches, l->count);
}

static void send_cursor(struct load *l);

/* Whether the clusters are those on record is known. */
static void take_identity(struct load *l) {
    enum identity_state answer = l->identity->state;
    if (answer == IDENTITY_IDLE || answer == IDENTITY_BUSY)
        return;
    identity_reset(l->identity);
    if (answer == IDENTITY_REFUSED)
        l->state = LOAD_REFUSED;
    else if (answer == IDENTITY_MOVED && !l->is_full)
        l->state = LOAD_STALE;
    else
        send_cursor(l);
}

void load_step(struct load *l, int64_t now_us) {
    if (l->state == LOAD_BUSY) {
        identity_step(l->identity);
        take_identity(l);
    }
    reconcile_step(l->reconcile, now_us);
    if (l->state != LOAD_BUSY || l->reconcile->state != RECONCILE_DONE)
        return;
    l->reconcile->state = RECONCILE_IDLE;
    finish(l);
}

/* ---- who holds whom ---- */

static enum row_scope scope_of(const char *name) {
    return strcmp(name, "topic") == 0 ? SCOPE_TOPIC : strcmp(name, "partition") == 0 ? SCOPE_PARTITION : SCOPE_KEY;
}

static void on_holds(void *context, struct pg_result *r) {
    struct load *l = context;
    enum { BLOCKER, SCOPE, BLOCKED, WAITERS, TOPIC, KEY, KEY_BYTES, PARTITION };
    for (int i = 0; i < pg_rows(r); i++) {
        int size, key_size;
        const char *name = pg_bytes(r, i, TOPIC, &size);
        const char *key = pg_bytes(r, i, KEY, &key_size);
        if (key == NULL)
            key = pg_bytes(r, i, KEY_BYTES, &key_size);
        struct hold_of of = {.topic = topics_get(&l->publisher->topics, name, (size_t)size),
                             .scope = scope_of(pg_text(r, i, SCOPE)),
                             .key = key,
                             .key_size = key_size,
                             .partition = pg_is_null(r, i, PARTITION) ? -1 : (int32_t)pg_int(r, i, PARTITION)};
        holds_load(&l->publisher->holds, &of, pg_int(r, i, BLOCKER), pg_int(r, i, BLOCKED) != 0,
                   (size_t)pg_int(r, i, WAITERS));
    }
    send_lookup(l);
}

static void send_holds(struct load *l) {
    struct pg_call call = {0};
    pg_add_text(&call, l->ledger->lease->relay);
    pg_add_int(&call, l->ledger->settled_id);
    pg_add_bool(&call, l->publisher->holds.by_rejected);
    ledger_look(l->ledger, l->pg, STATEMENT_LOAD_HOLDS, &call, on_holds, l);
}

/* ---- the rows of open batches ---- */

static void on_rows(void *context, struct pg_result *r) {
    struct load *l = context;
    struct load_batch *b = &l->batches[l->read++];
    b->batch = batch_from_result(r, (size_t)pg_rows(r), b->is_retry, &l->publisher->topics);
    b->batch->id = b->id;
    failpoint_pass(FAILPOINT_LOAD_ROWS);
    if (l->read < l->count)
        return;
    if (l->is_full)
        send_holds(l);
    else
        finish(l);
}

/* Where the page's ids lie close together, and in the first window, to which all rows belong, the primary key leads
 * there; elsewhere it would lead past everything that is settled. */
static enum statement choose_statement(const struct load_batch *b) {
    if (b->is_retry)
        return STATEMENT_LOAD_PARKED;
    bool is_dense = b->upto_id - b->after_id <= DENSE_FACTOR * b->row_count + DENSE_MARGIN;
    return is_dense || strcmp(b->from, WINDOW_START) == 0 ? STATEMENT_CLAIM_PAGE : STATEMENT_LOAD_PAGE;
}

static void send_rows(struct load *l, const struct load_batch *b) {
    struct pg_call call = {0};
    int64_t most = kafka_message_max_bytes(l->publisher->kafka);
    if (b->is_retry) {
        pg_add_text(&call, l->ledger->lease->relay);
        pg_add_int(&call, b->id);
    } else {
        pg_add_text(&call, b->from);
        pg_add_text(&call, b->to);
        pg_add_int(&call, b->after_id);
        pg_add_int(&call, b->upto_id);
        pg_add_int(&call, b->row_count);
    }
    pg_add_int(&call, most);
    ledger_begin(l->ledger, l->pg, false);
    statements_send(l->ledger->statements, l->pg, choose_statement(b), &call, on_rows, l);
    statements_send(l->ledger->statements, l->pg, STATEMENT_COMMIT, NULL, NULL, NULL);
    pg_sync(l->pg);
}

static void on_open(void *context, struct pg_result *r) {
    struct load *l = context;
    enum { ID, FROM, TO, AFTER, UPTO, LAST_PAGE, ROW_COUNT, IS_RETRY };
    l->count = (size_t)pg_rows(r);
    l->batches = calloc(l->count + 1, sizeof *l->batches);
    if (l->batches == NULL)
        abort();
    for (int i = 0; i < pg_rows(r); i++)
        l->batches[i] = (struct load_batch){
            .id = pg_int(r, i, ID),
            .after_id = pg_int(r, i, AFTER),
            .upto_id = pg_int(r, i, UPTO),
            .row_count = pg_int(r, i, ROW_COUNT),
            .last_page = pg_int(r, i, LAST_PAGE) != 0,
            .is_retry = pg_int(r, i, IS_RETRY) != 0,
            .from = copy(pg_text(r, i, FROM)),
            .to = copy(pg_text(r, i, TO)),
        };
    for (size_t i = 0; i < l->count; i++)
        send_rows(l, &l->batches[i]);
    if (l->count == 0 && l->is_full)
        send_holds(l);
    else if (l->count == 0)
        finish(l);
}

/* ---- first step: the cursor ---- */

static void on_cursor(void *context, struct pg_result *r) {
    struct load *l = context;
    struct ledger *ledger = l->ledger;
    enum { ID, FROM, TO, UPTO, LAST_PAGE, SETTLED, IN_RECOVERY, FLOOR };
    if (pg_int(r, 0, IN_RECOVERY) != 0) {
        l->saw_recovery = true;
        return;
    }
    failpoint_pass(FAILPOINT_LOAD_CURSOR);
    int64_t newest = pg_int(r, 0, ID), settled = pg_int(r, 0, SETTLED);
    if (!l->is_full && (newest < ledger->newest_id || settled < ledger->settled_id)) {
        l->state = LOAD_STALE;
        return;
    }
    if (l->is_full)
        ledger->newest_id = ledger->settled_id = settled;
    else if (!settle_resume(l->settle, settled)) {
        l->state = LOAD_STALE;
        return;
    }
    if (newest == 0)
        window_reset(&ledger->cursor);
    else
        window_load(&ledger->cursor, pg_text(r, 0, FROM), pg_text(r, 0, TO), pg_int(r, 0, UPTO),
                    pg_int(r, 0, LAST_PAGE) != 0);
    ledger->cursor.floor_id = pg_int(r, 0, FLOOR);
    struct pg_call call = {0};
    pg_add_text(&call, ledger->lease->relay);
    pg_add_int(&call, settled);
    pg_add_int(&call, ledger->newest_id);
    ledger_look(ledger, l->pg, STATEMENT_LOAD_OPEN, &call, on_open, l);
}

/* Rows that another process, or this one before it forgot everything, had in librdkafka's hands. */
static void send_adopt(struct load *l) {
    struct pgarray waiting = {0};
    struct pg_call call = {0};
    pgarray_begin(&waiting, PGARRAY_INT8, 16, 8);
    overdue_add_waiting(&l->publisher->overdue, &waiting);
    pgarray_end(&waiting);
    pg_add_text(&call, l->ledger->lease->relay);
    pg_add_binary(&call, waiting.data, waiting.size);
    ledger_begin(l->ledger, l->pg, false);
    statements_send(l->ledger->statements, l->pg, STATEMENT_LOAD_ADOPT, &call, NULL, NULL);
    statements_send(l->ledger->statements, l->pg, STATEMENT_COMMIT, NULL, NULL, NULL);
    pg_sync(l->pg);
    pgarray_free(&waiting);
}

static void send_cursor(struct load *l) {
    if (l->is_full)
        send_adopt(l);
    struct pg_call call = {0};
    pg_add_text(&call, l->ledger->lease->relay);
    ledger_look(l->ledger, l->pg, STATEMENT_LOAD_CURSOR, &call, on_cursor, l);
}

void load_start(struct load *l, bool is_full) {
    forget_batches(l);
    l->is_full = is_full;
    l->saw_recovery = false;
    l->state = LOAD_BUSY;
    identity_start(l->identity);
}
