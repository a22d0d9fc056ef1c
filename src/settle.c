/* settle.c: writes the receipts: arrays for what went out, parked rows for what did not, in one fenced transaction. */
#include "denpyo/settle.h"

#include <assert.h>
#include <string.h>

#include "denpyo/failpoint.h"
#include "denpyo/loop.h"
#include "denpyo/range.h"

#define ROWS_AT_ONCE 20000
#define BATCHES_AT_ONCE 200

void settle_init(struct settle *s, struct ledger *ledger, struct holds *holds, struct overdue *overdue, struct pg *pg) {
    *s = (struct settle){.ledger = ledger, .holds = holds, .overdue = overdue, .pg = pg};
}

void settle_free(struct settle *s) {
    for (size_t i = 0; i < sizeof s->arrays / sizeof *s->arrays; i++)
        pgarray_free(&s->arrays[i]);
}

static void add_array(struct pg_call *call, struct pgarray *array) {
    pgarray_end(array);
    pg_add_binary(call, array->data, array->size);
}

static void begin_call(const struct settle *s, const struct batch *batch, struct pg_call *call) {
    *call = (struct pg_call){0};
    pg_add_text(call, s->ledger->lease->relay);
    pg_add_int(call, batch->id);
}

enum receipt_array { NAMES, IDS, MESSAGE_IDS, TOPICS, PARTITIONS, OFFSETS, STRETCHES, COUNTS };

static void begin_receipt(struct settle *s, const struct batch *batch) {
    struct pgarray *a = s->arrays;
    pgarray_begin(&a[NAMES], PGARRAY_TEXT, 4, 32);
    pgarray_begin(&a[IDS], PGARRAY_INT8, batch->count, 8);
    pgarray_begin(&a[MESSAGE_IDS], PGARRAY_UUID, batch->count, 16);
    pgarray_begin(&a[TOPICS], PGARRAY_INT2, batch->count, 2);
    pgarray_begin(&a[PARTITIONS], PGARRAY_INT4, batch->count, 4);
    pgarray_begin(&a[OFFSETS], PGARRAY_INT8, batch->count, 8);
    pgarray_begin(&a[COUNTS], PGARRAY_INT4, 4, 4);
    stretch_begin(&s->stretches, &a[STRETCHES]);
}

/* The receipt proper, and the counts per topic. */
static void send_receipt(struct settle *s, const struct batch *batch) {
    struct pgarray *a = s->arrays;
    begin_receipt(s, batch);
    struct topic *names[INT16_MAX];
    int32_t counts[INT16_MAX];
    int16_t topics = 0;
    int64_t first = 0, last = 0;
    for (size_t i = 0; i < batch->count; i++) {
        const struct row *row = &batch->rows[i];
        if (row->outcome != ROW_DISPATCHED)
            continue;
        if (row->topic->index < 0) {
            assert(topics < INT16_MAX);
            row->topic->index = topics;
            names[topics] = row->topic;
            counts[topics++] = 0;
            pgarray_add_bytes(&a[NAMES], row->topic->name, row->topic->name_size);
        }
        counts[row->topic->index]++;
        pgarray_add_int8(&a[IDS], row->id);
        pgarray_add_bytes(&a[MESSAGE_IDS], row->message_id, 16);
        pgarray_add_int2(&a[TOPICS], (int16_t)(row->topic->index + 1));
        pgarray_add_int4(&a[PARTITIONS], row->partition);
        pgarray_add_int8(&a[OFFSETS], row->offset);
        stretch_add(&s->stretches, &a[STRETCHES], row->topic, row->partition, row->offset);
        first = first == 0 ? row->id : first;
        last = row->id;
    }
    for (int16_t i = 0; i < topics; i++) {
        names[i]->index = -1;
        pgarray_add_int4(&a[COUNTS], counts[i]);
    }
    struct pg_call call;
    begin_call(s, batch, &call);
    for (int i = NAMES; i <= OFFSETS; i++)
        add_array(&call, &a[i]);
    if (topics > 0) {
        pg_add_int(&call, first);
        pg_add_int(&call, last);
    } else {
        pg_add_text(&call, NULL);
        pg_add_text(&call, NULL);
    }
    add_array(&call, &a[STRETCHES]);
    statements_send(s->ledger->statements, s->pg, STATEMENT_SETTLE_BATCH, &call, NULL, NULL);
    if (topics == 0)
        return;
    begin_call(s, batch, &call);
    add_array(&call, &a[NAMES]);
    add_array(&call, &a[COUNTS]);
    statements_send(s->ledger->statements, s->pg, STATEMENT_SETTLE_TOPICS, &call, NULL, NULL);
}

/* A retry batch's rows that were dispatched leave the parked table, and the ranges it took are gone with all rows. */
static void send_unpark(struct settle *s, const struct batch *batch) {
    range_send_drop(s->ledger, s->pg, batch);
    struct pgarray *ids = &s->arrays[0];
    pgarray_begin(ids, PGARRAY_INT8, batch->count, 8);
    for (size_t i = 0; i < batch->count; i++)
        if (batch->rows[i].outcome == ROW_DISPATCHED && batch->rows[i].range_id == 0)
            pgarray_add_int8(ids, batch->rows[i].id);
    if (ids->count == 0)
        return;
    struct pg_call call = {0};
    add_array(&call, ids);
    statements_send(s->ledger->statements, s->pg, STATEMENT_SETTLE_UNPARK, &call, NULL, NULL);
    failpoint_pass(FAILPOINT_SETTLE_UNPARKED);
}

static void add_text(struct pgarray *array, const char *text) {
    pgarray_add_bytes(array, text, strlen(text));
}

static const char *scope_name(enum row_scope scope) {
    static const char *const names[] = {[SCOPE_KEY] = "key", [SCOPE_TOPIC] = "topic", [SCOPE_PARTITION] = "partition"};
    return names[scope];
}

static const char *state_name(enum row_outcome outcome) {
    switch (outcome) {
    case ROW_FAILED:
        return "failed";
    case ROW_HELD:
        return "held";
    case ROW_REJECTED:
        return "rejected";
    case ROW_DELAYED:
        return "delayed";
    case ROW_SKIPPED:
        return "skipped";
    case ROW_UNSURE:
        return "requesting";
    case ROW_OPEN:
    case ROW_DISPATCHED:
        break;
    }
    assert(!"only rows off the straight way are parked");
    return NULL;
}

enum parked_column {
    P_ID,
    P_MESSAGE_ID,
    P_TOPIC,
    P_STATE,
    P_SCOPE,
    P_ATTEMPTS,
    P_DELAY,
    P_DUE,
    P_WAITS,
    P_CODE,
    P_ERROR,
    P_PARTITION
};
static const struct {
    enum pgarray_type type;
    size_t size;
} parked_types[] = {
    [P_ID] = {PGARRAY_INT8, 8},    [P_MESSAGE_ID] = {PGARRAY_UUID, 16}, [P_TOPIC] = {PGARRAY_TEXT, 20},
    [P_STATE] = {PGARRAY_TEXT, 8}, [P_SCOPE] = {PGARRAY_TEXT, 5},       [P_ATTEMPTS] = {PGARRAY_INT4, 4},
    [P_DELAY] = {PGARRAY_INT8, 8}, [P_DUE] = {PGARRAY_INT8, 8},         [P_WAITS] = {PGARRAY_INT8, 8},
    [P_CODE] = {PGARRAY_TEXT, 20}, [P_ERROR] = {PGARRAY_TEXT, 100},     [P_PARTITION] = {PGARRAY_INT4, 4},
};
#define PARKED_COLUMNS (sizeof parked_types / sizeof *parked_types)

static void add_parked(struct pgarray *a, const struct row *row) {
    assert(row->outcome != ROW_FAILED || row->trouble != NULL);
    enum row_scope scope = row->outcome == ROW_HELD ? row->hold->scope : row->trouble ? row->trouble->scope : SCOPE_KEY;
    pgarray_add_int8(&a[P_ID], row->id);
    pgarray_add_bytes(&a[P_MESSAGE_ID], row->message_id, 16);
    pgarray_add_bytes(&a[P_TOPIC], row->topic->name, row->topic->name_size);
    add_text(&a[P_STATE], state_name(row->outcome));
    add_text(&a[P_SCOPE], scope_name(scope));
    pgarray_add_int4(&a[P_ATTEMPTS], row->attempts);
    if (row->outcome == ROW_FAILED || (row->outcome == ROW_UNSURE && !row->is_overdue))
        pgarray_add_int8(&a[P_DELAY], row->outcome == ROW_FAILED ? row->trouble->delay_ms : 0);
    else
        pgarray_add_null(&a[P_DELAY]);
    if (row->outcome == ROW_DELAYED)
        pgarray_add_int8(&a[P_DUE], row->available_us);
    else
        pgarray_add_null(&a[P_DUE]);
    if (row->outcome == ROW_HELD)
        pgarray_add_int8(&a[P_WAITS], holds_blocker(row));
    else
        pgarray_add_null(&a[P_WAITS]);
    if (row->trouble != NULL) {
        add_text(&a[P_CODE], row->trouble->code);
        add_text(&a[P_ERROR], row->trouble->text);
    } else {
        pgarray_add_null(&a[P_CODE]);
        pgarray_add_null(&a[P_ERROR]);
    }
    if (scope == SCOPE_PARTITION)
        pgarray_add_int4(&a[P_PARTITION], row->outcome == ROW_HELD ? row->hold->partition : row->partition);
    else
        pgarray_add_null(&a[P_PARTITION]);
}

/* The rows that are off the straight way. */
static void send_parked(struct settle *s, const struct batch *batch) {
    if (s->holds->count > 0) /* a held row keeps its hold */
        range_send_park(s->ledger, s->pg, batch, s->arrays);
    for (size_t i = 0; i < PARKED_COLUMNS; i++)
        pgarray_begin(&s->arrays[i], parked_types[i].type, 16, parked_types[i].size);
    for (size_t i = 0; i < batch->count; i++)
        if (batch->rows[i].outcome != ROW_DISPATCHED && !batch->rows[i].is_ranged) {
            add_parked(s->arrays, &batch->rows[i]);
            holds_seal(s->holds, &batch->rows[i]);
        }
    if (s->arrays[P_ID].count == 0)
        return;
    failpoint_pass(FAILPOINT_SETTLE_PARK);
    struct pg_call call;
    begin_call(s, batch, &call);
    for (size_t i = 0; i < PARKED_COLUMNS; i++)
        add_array(&call, &s->arrays[i]);
    statements_send(s->ledger->statements, s->pg, STATEMENT_SETTLE_PARKED, &call, NULL, NULL);
    failpoint_pass(FAILPOINT_SETTLE_PARKED);
}

static void on_repointed(void *context, struct pg_result *r) {
    struct row *row = context;
    row->trouble->repointed = (size_t)pg_int(r, 0, 0);
}

static bool repoints(const struct row *row) {
    return row->trouble != NULL && row->trouble->repoints_from != 0;
}

static void send_repoints(struct settle *s, const struct batch *batch) {
    for (size_t i = 0; i < batch->count; i++) {
        struct row *row = &batch->rows[i];
        if (!repoints(row))
            continue;
        struct pg_call call = {0};
        pg_add_int(&call, row->trouble->repoints_from);
        pg_add_int(&call, row->id);
        pg_add_text(&call, scope_name(row->trouble->scope));
        pg_add_text(&call, s->ledger->lease->relay);
        pg_add_int(&call, batch->id);
        pg_add_bool(&call, s->holds->by_rejected);
        statements_send(s->ledger->statements, s->pg, STATEMENT_SETTLE_REPOINT, &call, on_repointed, row);
    }
}

/* The batch's settlement is committed: it leaves memory. */
static void close_batch(struct settle *s) {
    struct ledger *ledger = s->ledger;
    struct batch *batch = batch_queue_pop(&ledger->open);
    for (size_t i = 0; i < batch->count; i++) {
        struct row *row = &batch->rows[i];
        holds_settle(s->holds, row, repoints(row) ? row->trouble->repointed : 0);
        if (row->outcome == ROW_DISPATCHED)
            s->settled_rows++;
        else if (row->outcome == ROW_FAILED || row->outcome == ROW_DELAYED)
            ledger->ask_next_due = true;
    }
    if (batch->is_retry) {
        ledger->retry_open--;
        ledger->ask_next_due = true;
    }
    ledger->settled_id = batch->id;
    if (overdue_settled(s->overdue, batch))
        batch_queue_push(&ledger->kept, batch);
    else
        batch_free(batch);
}

static void on_committed(void *context, struct pg_result *r) {
    struct settle *s = context;
    (void)r;
    failpoint_pass(FAILPOINT_SETTLE_COMMITTED);
    for (; s->sent > 0; s->sent--)
        close_batch(s);
    s->ledger->settlements_done++;
    s->settled_us = loop_now_us();
}

static bool batch_repoints(const struct batch *batch) {
    for (size_t i = 0; i < batch->count; i++)
        if (repoints(&batch->rows[i]))
            return true;
    return false;
}

void settle_step(struct settle *s, bool can_repoint) {
    struct ledger *ledger = s->ledger;
    if (ledger->kept.count > 0)
        ledger_drop_kept(ledger);
    if (s->sent > 0 || pg_state(s->pg) != PG_READY)
        return;
    size_t rows = 0;
    bool some_repoint = s->holds->repoints > 0;
    for (struct batch *b = ledger->open.first; b != NULL && b->open == 0; b = b->next) {
        if (rows >= ROWS_AT_ONCE || s->sent >= BATCHES_AT_ONCE || (some_repoint && !can_repoint && batch_repoints(b)))
            break;
        if (s->sent == 0)
            ledger_begin(ledger, s->pg, true);
        send_receipt(s, b);
        if (b->is_retry)
            send_unpark(s, b);
        send_parked(s, b);
        if (some_repoint)
            send_repoints(s, b);
        rows += b->count;
        s->sent++;
    }
    if (s->sent == 0)
        return;
    failpoint_pass(FAILPOINT_SETTLE_COMMIT);
    ledger->settlements_sent++;
    statements_send(ledger->statements, s->pg, STATEMENT_COMMIT, NULL, on_committed, s);
    pg_sync(s->pg);
    failpoint_pass(FAILPOINT_SETTLE_COMMIT_SENT);
}

void settle_reset(struct settle *s) {
    s->sent = 0;
    s->ledger->settlements_done = s->ledger->settlements_sent;
}

bool settle_resume(struct settle *s, int64_t upto_id) {
    settle_reset(s);
    while (s->ledger->open.first != NULL && s->ledger->open.first->id <= upto_id) {
        if (s->holds->repoints > 0 && batch_repoints(s->ledger->open.first))
            return false;
        close_batch(s);
    }
    return true;
}
