/* reconcile.c: matches the rows of open batches with what the ends of their topics hold. */
#include "denpyo/reconcile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/failpoint.h"
#include "denpyo/kafka_code.h"
#include "denpyo/log.h"
#include "denpyo/loop.h"
#include "denpyo/mark.h"
#include "denpyo/overdue.h"
#include "denpyo/partition.h"
#include "denpyo/pgarray.h"

#define SETTLE_MS 300          /* the ends must have stood still for so long */
#define TIMEOUT_MS 600000      /* one look-up; then another is tried */
#define CLOCK_MARGIN_MS 120000 /* how far the clocks of relay, database and broker may be apart */
#define REPORT_EVERY_US 5000000
#define RETRY_US 500000 /* between two tries */

void reconcile_init(struct reconcile *rc, struct ledger *ledger, struct publisher *publisher, struct pg *pg,
                    struct worker *worker, const struct kafka_options *options) {
    *rc = (struct reconcile){.ledger = ledger, .publisher = publisher, .pg = pg, .worker = worker, .options = options};
}

void reconcile_reset(struct reconcile *rc) {
    if (rc->is_reading) { /* freed when the worker is done with it */
        atomic_store(&rc->tail->is_cancelled, true);
    } else {
        kafka_tail_free(rc->tail);
    }
    free(rc->batches);
    rc->batches = NULL;
    rc->tail = NULL;
    rc->is_reading = false;
    rc->retry_us = 0;
    rc->state = RECONCILE_IDLE;
}

/* ---- the answer ---- */

/* What the committed transactions say of the batches, also of what no topic holds any more. The newest mark is put on a
 * topic of its newest batch, so that no batch after the newest that is told of was committed. */
static void take_marks(struct reconcile *rc) {
    rc->told_id = 0;
    for (size_t b = 0; b < rc->batch_count; b++) {
        struct batch *batch = rc->batches[b];
        for (size_t i = 0; i < rc->tail->topic_count; i++) {
            const struct kafka_tail_topic *topic = &rc->tail->topics[i];
            if (topic->mark == NULL || !mark_apply(topic->mark_offset, topic->mark, batch))
                continue;
            batch->is_told = true;
            rc->told_id = batch->id;
        }
    }
}

/* Not in its topic. In exactly-once mode that says enough unless records are gone: what was not committed was aborted,
 * by the fence at the latest. Of what is gone the mark tells. */
static bool has_arrived(struct reconcile *rc, struct row *row, const struct kafka_tail_topic *topic) {
    bool is_known = row->batch->is_told || (rc->told_id > 0 && row->batch->id > rc->told_id);
    row->is_unsure = !rc->publisher->is_transactional || (!is_known && (topic->is_cut || topic->is_unreadable));
    return row->is_marked;
}

/* partition and offset -1: its place is gone. */
static void close_arrived(struct reconcile *rc, struct row *row, int32_t partition, int64_t offset) {
    if (!row->is_explicit)
        row->partition = partition;
    row->offset = offset;
    batch_close_row(row, ROW_DISPATCHED);
    holds_resolve(&rc->publisher->holds, row);
}

/* The partition that could hold the row and could not be read, because it has no leader; -1 = there is none, INT32_MAX
 * = any. */
static int32_t away_partition(const struct row *row, const struct kafka_tail_topic *topic) {
    if (topic->is_away == NULL)
        return -1;
    if (row->key == NULL && !row->is_explicit)
        return INT32_MAX;
    int32_t partition =
        row->is_explicit ? row->partition : partition_of_key(row->key, (size_t)row->key_size, topic->partitions);
    return partition < topic->partitions && topic->is_away[partition] ? partition : -1;
}

static void take_found(struct reconcile *rc) {
    struct kafka_tail *tail = rc->tail;
    size_t vanished = 0, doubtful = 0, unread = 0;
    take_marks(rc);
    for (size_t i = 0; i < tail->wanted_count; i++) {
        struct kafka_tail_wanted *w = &tail->wanted[i];
        const struct kafka_tail_topic *topic = &tail->topics[w->topic];
        int32_t away;
        if (w->offset >= 0) {
            close_arrived(rc, w->opaque, w->partition, w->offset);
        } else if (has_arrived(rc, w->opaque, topic)) {
            close_arrived(rc, w->opaque, -1, -1);
            vanished++;
        } else if ((away = away_partition(w->opaque, topic)) >= 0) {
            overdue_await(rc->publisher, w->opaque, away);
            unread++;
        } else {
            doubtful += ((struct row *)w->opaque)->is_unsure;
        }
    }
    for (size_t i = 0; i < tail->topic_count; i++)
        if (tail->topics[i].is_unreadable)
            log_event(LOG_WARN, "a topic cannot be read: what may have arrived there is sent again with the same id",
                      log_str("topic", tail->topics[i].name), log_str("code", kafka_code_name(tail->topics[i].code)),
                      LOG_END);
    if (unread > 0)
        log_event(LOG_WARN, "partitions without a leader cannot be read: messages that may have arrived there wait",
                  log_int("messages", (int64_t)unread), LOG_END);
    if (doubtful > 0 && rc->publisher->is_transactional)
        log_event(LOG_WARN,
                  "records were deleted before they could be looked up, and no mark tells of them: messages may be "
                  "sent twice",
                  log_int("messages", (int64_t)doubtful), LOG_END);
    log_event(LOG_INFO, "looked up what arrived before the restart", log_int("messages", (int64_t)tail->wanted_count),
              log_int("arrived", (int64_t)tail->found), log_int("arrived_and_gone", (int64_t)vanished),
              log_int("to_send", (int64_t)(tail->wanted_count - tail->found - vanished - unread)),
              log_int("records_read", (int64_t)atomic_load(&tail->read)),
              log_int("ms", (loop_now_us() - rc->started_us) / 1000), LOG_END);
}

/* One line for each new reason; the next try is not at once. */
static void note_failure(struct reconcile *rc) {
    const char *why = rc->tail->fault.text;
    if (strcmp(rc->failure, why) != 0)
        log_event(LOG_WARN, "the look-up failed and is tried again", log_str("error", why), LOG_END);
    snprintf(rc->failure, sizeof rc->failure, "%s", why);
    rc->tail->found = 0;
    atomic_store(&rc->tail->read, 0);
    rc->is_reading = false;
    rc->retry_us = loop_now_us() + RETRY_US;
}

static void start_reading(struct reconcile *rc) {
    rc->is_reading = true;
    rc->retry_us = 0;
    rc->outstanding++;
    kafka_tail_submit(rc->tail, rc->worker);
}

static void on_tail(struct kafka_tail *tail) {
    struct reconcile *rc = tail->context;
    rc->outstanding--;
    if (tail != rc->tail) { /* given up meanwhile */
        kafka_tail_free(tail);
        return;
    }
    if (tail->fault.class != FAULT_NONE) {
        note_failure(rc);
        return;
    }
    failpoint_pass(FAILPOINT_LOOKUP_ENDED);
    take_found(rc);
    failpoint_pass(FAILPOINT_LOOKUP_TAKEN);
    kafka_tail_free(tail);
    rc->tail = NULL;
    free(rc->batches);
    rc->batches = NULL;
    rc->is_reading = false;
    rc->state = RECONCILE_DONE;
}

/* ---- where to begin ---- */

static struct kafka_tail_topic *topic_of(struct kafka_tail *tail, const char *name, int size) {
    for (size_t i = 0; i < tail->topic_count; i++)
        if (strlen(tail->topics[i].name) == (size_t)size && memcmp(tail->topics[i].name, name, (size_t)size) == 0)
            return &tail->topics[i];
    return NULL;
}

static void on_starts(void *context, struct pg_result *r) {
    struct reconcile *rc = context;
    struct kafka_tail *tail = rc->tail;
    for (int i = 0; i < pg_rows(r); i++) {
        int size;
        const char *name = pg_bytes(r, i, 0, &size);
        int64_t number = pg_int(r, i, 2);
        struct kafka_tail_topic *topic = name != NULL ? topic_of(tail, name, size) : NULL;
        if (name == NULL)
            tail->since_ms = number - CLOCK_MARGIN_MS;
        if (topic == NULL)
            continue;
        topic->starts = realloc(topic->starts, (topic->start_count + 1) * sizeof *topic->starts);
        if (topic->starts == NULL)
            abort();
        topic->starts[topic->start_count++] = (struct kafka_tail_start){(int32_t)pg_int(r, i, 1), number};
    }
    start_reading(rc);
}

static void ask_starts(struct reconcile *rc) {
    struct pgarray names = {0};
    struct pg_call call = {0};
    pgarray_begin(&names, PGARRAY_TEXT, rc->tail->topic_count, 32);
    for (size_t i = 0; i < rc->tail->topic_count; i++)
        pgarray_add_bytes(&names, rc->tail->topics[i].name, strlen(rc->tail->topics[i].name));
    pgarray_end(&names);
    pg_add_text(&call, rc->ledger->lease->relay);
    pg_add_int(&call, rc->ledger->settled_id);
    pg_add_binary(&call, names.data, names.size);
    ledger_look(rc->ledger, rc->pg, STATEMENT_LOAD_TAILS, &call, on_starts, rc);
    pgarray_free(&names);
}

/* ---- the question ---- */

/* A row that may have been sent: one that is due, could be a message, and was read in full. */
static bool is_wanted(const struct row *row) {
    return row->outcome == ROW_OPEN && row->available_us == 0 && row->oversize == 0 && !row->is_skipped &&
           row->defect == DEFECT_NONE;
}

static size_t number_topics(struct batch *const *batches, size_t count, size_t *rows) {
    size_t topics = 0;
    *rows = 0;
    for (size_t b = 0; b < count; b++)
        for (size_t i = 0; i < batches[b]->count; i++) {
            struct row *row = &batches[b]->rows[i];
            if (!is_wanted(row))
                continue;
            if (row->topic->index < 0)
                row->topic->index = (int)topics++;
            ++*rows;
        }
    return topics;
}

static void fill(struct kafka_tail *tail, struct batch *const *batches, size_t count) {
    size_t at = 0;
    for (size_t b = 0; b < count; b++)
        for (size_t i = 0; i < batches[b]->count; i++) {
            struct row *row = &batches[b]->rows[i];
            if (!is_wanted(row))
                continue;
            struct kafka_tail_topic *topic = &tail->topics[row->topic->index];
            if (topic->name == NULL && (topic->name = strdup(row->topic->name)) == NULL)
                abort();
            struct kafka_tail_wanted *w = &tail->wanted[at++];
            memcpy(w->id, row->message_id, 16);
            w->topic = row->topic->index;
            w->opaque = row;
        }
    for (size_t b = 0; b < count; b++)
        for (size_t i = 0; i < batches[b]->count; i++)
            batches[b]->rows[i].topic->index = -1;
}

void reconcile_start(struct reconcile *rc, struct batch *const *batches, size_t count) {
    rc->state = RECONCILE_DONE;
    if (rc->publisher->options.on_unknown == PUBLISH_RESEND && !rc->publisher->is_transactional)
        return;
    size_t rows;
    size_t topics = number_topics(batches, count, &rows);
    if (rows == 0)
        return;
    rc->state = RECONCILE_BUSY;
    rc->batches = malloc(count * sizeof(struct batch *));
    if (rc->batches == NULL)
        abort();
    memcpy(rc->batches, batches, count * sizeof(struct batch *));
    rc->batch_count = count;
    rc->started_us = rc->report_us = loop_now_us();
    rc->failure[0] = 0;
    rc->tail = kafka_tail_new(topics, rows);
    fill(rc->tail, batches, count);
    rc->tail->options = rc->options;
    rc->tail->is_read_committed = rc->publisher->is_transactional;
    rc->tail->settle_ms = SETTLE_MS;
    rc->tail->timeout_ms = TIMEOUT_MS;
    rc->tail->done = on_tail;
    rc->tail->context = rc;
    ask_starts(rc);
    failpoint_pass(FAILPOINT_LOOKUP_ASKED);
}

void reconcile_step(struct reconcile *rc, int64_t now_us) {
    if (rc->state == RECONCILE_BUSY && rc->retry_us != 0 && now_us >= rc->retry_us)
        start_reading(rc);
    if (rc->state != RECONCILE_BUSY || !rc->is_reading || now_us < rc->report_us + REPORT_EVERY_US)
        return;
    rc->report_us = now_us;
    log_event(LOG_INFO, "looking up what arrived before the restart",
              log_int("messages", (int64_t)rc->tail->wanted_count),
              log_int("records_read", (int64_t)atomic_load(&rc->tail->read)), LOG_END);
}
