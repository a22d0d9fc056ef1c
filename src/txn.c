/* txn.c: runs one transaction after the other over the claimed batches. */
#include "denpyo/txn.h"

#include <stdlib.h>

#include "denpyo/failpoint.h"
#include "denpyo/kafka_code.h"
#include "denpyo/log.h"
#include "denpyo/loop.h"
#include "denpyo/route.h"

#define CALL_TIMEOUT_MS 30000
#define ABORT_TIMEOUT_MS 1000 /* each call purges anew: what comes back for a retry after the purge is never sent */
#define RETRY_US 100000
#define LOST_US 90000000 /* well above the time-outs of the calls that one job makes */
#define STILL_US 2000000
#define LARGE_ROWS 1000 /* a batch of so many says that more is waiting */
#define GROW_US 3000
/* The broker answers a commit before it has told the partitions. Whoever begins the next transaction meanwhile is sent
 * away, and comes again after 20 ms (librdkafka 2.0.2, rd_kafka_txn_handle_AddPartitionsToTxn). After a large one,
 * other work fills the time. */
#define REST_US 6000
#define MORE_US 30000   /* a complete one waits so long for a batch that is being claimed, if the last was large */
#define LONG_US 500000  /* open for so long, it waits no more: readers are to see what it has, if claims are slow */
#define STEP_ROWS 10000 /* go into the lanes at a time: the first are to be on their way while the others follow */

void txn_init(struct txn *t, struct ledger *ledger, struct publisher *publisher, struct worker *worker,
              const struct kafka_options *options, int64_t most_rows) {
    *t = (struct txn){.ledger = ledger,
                      .publisher = publisher,
                      .worker = worker,
                      .options = options,
                      .most_rows = (size_t)most_rows,
                      .mark_most = MARK_TEXT_MOST};
}

/* ---- the calls ---- */

static void on_called(struct kafka_txn *call);

static void prepare(struct txn *t, enum txn_state state, enum kafka_txn_call which) {
    t->state = state;
    t->call = (struct kafka_txn){.kafka = t->publisher->kafka,
                                 .call = which,
                                 .timeout_ms = which == KAFKA_TXN_ABORT ? ABORT_TIMEOUT_MS : CALL_TIMEOUT_MS,
                                 .options = t->options,
                                 .group = t->options->transactional_id,
                                 .done = on_called,
                                 .context = t};
}

static void start_call(struct txn *t) {
    t->is_calling = true;
    t->called_for_us = 0;
    t->watched_us = loop_now_us();
    kafka_txn_submit(&t->call, t->worker);
    failpoint_pass(t->state == TXN_INIT     ? FAILPOINT_TXN_FENCE_SENT
                   : t->state == TXN_COMMIT ? FAILPOINT_TXN_COMMIT_SENT
                                            : FAILPOINT_TXN_ABORT_SENT);
}

static void submit(struct txn *t, enum txn_state state, enum kafka_txn_call which) {
    prepare(t, state, which);
    start_call(t);
}

static void commit(struct txn *t) {
    prepare(t, TXN_COMMIT, KAFKA_TXN_COMMIT);
    t->publisher->is_ending = true;
    if (mark_write(&t->mark, t->ledger->open.first, t->routed_id, t->mark_most)) {
        t->call.mark_topic = t->mark.topic->name;
        t->call.mark_offset = t->mark.batch_id;
        t->call.mark_text = t->mark.text;
    }
    start_call(t);
}

/* A mark that the broker does not take is not tried again as it is. */
static void learn_from_refusal(struct txn *t) {
    if (t->call.mark_topic == NULL || t->call.is_half_done)
        return;
    if (t->call.code == KAFKA_CODE_METADATA_TOO_LARGE)
        t->mark_most /= 2;
    if (t->call.code != KAFKA_CODE_TOPIC_AUTHORIZATION)
        return;
    t->mark.topic->is_unmarkable = true;
    log_event(LOG_ERROR,
              "exactly_once may not put its mark on a topic: after a crash messages may be sent twice; grant "
              "the relay Read on it",
              log_str("topic", t->mark.topic->name), LOG_END);
}

static void break_with(struct txn *t, const struct fault *f) {
    t->state = TXN_BROKEN;
    t->fault = *f;
}

/* Rows of the transaction's batches that are neither closed nor acknowledged. */
static size_t rows_left(const struct txn *t) {
    size_t open = 0;
    for (const struct batch *b = t->ledger->open.first; b != NULL && b->id <= t->routed_id; b = b->next)
        open += b->open;
    return open - t->publisher->acknowledged;
}

/* Closes the rows of a committed transaction. That takes a while for many, so the next one is on its way before. */
static void confirm(struct txn *t) {
    if (t->confirm_id > 0)
        publish_confirm(t->publisher, t->ledger->open.first, t->confirm_id);
    t->confirm_id = 0;
}

static void on_success(struct txn *t) {
    if (t->state == TXN_COMMIT) {
        failpoint_pass(FAILPOINT_TXN_COMMITTED);
        publish_committed(t->publisher);
        t->confirm_id = t->routed_id;
        t->rest_until_us = t->rows < LARGE_ROWS ? loop_now_us() + REST_US : 0;
        /* What they held, or what waited for them to be closed, goes into the next transaction. */
        if (t->publisher->holds.count > 0 || rows_left(t) > 0)
            confirm(t);
    } else if (t->state == TXN_ABORT) {
        failpoint_pass(FAILPOINT_TXN_ABORTED);
        publish_take_back(t->publisher, t->ledger->open.first);
    } else {
        failpoint_pass(FAILPOINT_TXN_FENCED);
    }
    t->state = TXN_READY;
}

static void on_called(struct kafka_txn *call) {
    struct txn *t = call->context;
    struct fault f = call->fault;
    t->is_calling = false;
    if (t->is_forgotten) {
        t->is_forgotten = false;
        t->call = (struct kafka_txn){0};
        return;
    }
    switch (f.class) {
    case FAULT_NONE:
        on_success(t);
        return;
    case FAULT_RETRY: /* the same call again: its outcome is not decided yet */
        if (t->state != TXN_ABORT)
            log_event(LOG_WARN, "a transaction's step takes long", log_str("code", f.code), log_str("error", f.text),
                      LOG_END);
        t->retry_us = loop_now_us() + RETRY_US;
        return;
    case FAULT_REJECT:
        log_event(LOG_WARN, "a transaction is aborted and sent again", log_str("code", f.code),
                  log_str("error", f.text), LOG_END);
        if (t->state == TXN_COMMIT) {
            learn_from_refusal(t);
            submit(t, TXN_ABORT, KAFKA_TXN_ABORT);
        } else
            break_with(t, &f);
        return;
    case FAULT_FENCED:
    case FAULT_FATAL:
    case FAULT_USAGE:
        break_with(t, &f);
        return;
    }
}

void txn_start(struct txn *t) {
    t->publisher->is_transactional = true;
    if (t->is_calling) { /* a forgotten producer's last call: INIT comes after it */
        t->state = TXN_INIT;
        t->retry_us = 0;
        return;
    }
    submit(t, TXN_INIT, KAFKA_TXN_INIT);
}

void txn_forget(struct txn *t) {
    t->is_forgotten = t->is_calling;
    t->state = TXN_OFF;
    t->routed_id = t->confirm_id = 0;
    t->goes_on = false;
}

/* ---- steps ---- */

static bool has_open_rows(const struct txn *t) {
    for (const struct batch *b = t->ledger->open.first; b != NULL; b = b->next)
        if (b->open > 0 && b->id > t->confirm_id)
            return true;
    return false;
}

/* Every row of the transaction's batches is acknowledged, or closed without having been sent, or waits for those that
 * are acknowledged to be closed: it goes in the next one. */
static bool is_complete(const struct txn *t) {
    size_t left = rows_left(t);
    return left == 0 || (t->publisher->acknowledged > 0 && left == route_waiting(t->publisher));
}

/* Routes what was claimed and is not in the lanes yet, at least up to a batch. A transaction that is open grows while
 * large batches come, since its commit takes as long for many rows as for one; and for a moment whatever comes, but not
 * for ever: somebody waits. */
static void route(struct txn *t, int64_t at_least_id, int64_t now_us) {
    size_t rows = 0;
    t->goes_on = false;
    for (struct batch *b = t->ledger->open.first; b != NULL; b = b->next) {
        if (b->id <= t->routed_id)
            continue;
        bool is_wanted = b->count >= LARGE_ROWS || now_us < t->begun_us + GROW_US;
        if (t->rows > 0 && b->id > at_least_id && (b->is_retry || !is_wanted || t->rows + b->count > t->most_rows))
            return;
        if (rows >= STEP_ROWS && b->id > at_least_id) {
            t->goes_on = true;
            return;
        }
        publish_route(t->publisher, b);
        t->routed_id = b->id;
        t->rows += b->count;
        t->newest_rows = b->count;
        rows += b->count;
    }
}

/* What an aborted transaction left in the lanes goes first. A batch of parked rows joins at once: newer rows of their
 * keys must not go without them. */
static void route_first(struct txn *t, int64_t now_us) {
    int64_t parked_id = 0;
    t->rows = t->newest_rows = 0;
    t->wait_until_us = 0;
    for (const struct batch *b = t->ledger->open.first; b != NULL; b = b->next) {
        if (b->id <= t->routed_id && b->id > t->confirm_id)
            t->rows += b->open;
        if (b->is_retry)
            parked_id = b->id;
    }
    route(t, parked_id, now_us);
}

static void begin(struct txn *t, int64_t now_us) {
    struct fault f = {0};
    failpoint_pass(FAILPOINT_TXN_BEGIN);
    if (!kafka_txn_begin(t->publisher->kafka, &f)) {
        break_with(t, &f);
        return;
    }
    t->state = TXN_OPEN;
    t->publisher->is_open = true;
    t->begun_us = now_us;
    failpoint_pass(FAILPOINT_TXN_BEGUN);
    route_first(t, now_us);
}

/* The lanes may run empty while there is more to send: each commit less is time in which nothing else is sent. A batch
 * that is there already, and goes into the next one, keeps all later ones from this one. */
static bool waits_for_more(struct txn *t, bool more_comes, int64_t now_us) {
    const struct batch *last = t->ledger->open.last;
    bool is_left_over = last != NULL && last->id > t->routed_id && !t->goes_on;
    if (!more_comes || is_left_over || t->newest_rows < LARGE_ROWS || t->rows + t->newest_rows > t->most_rows)
        return false;
    if (t->wait_until_us == 0) {
        int64_t latest_us = t->begun_us + LONG_US;
        t->wait_until_us = now_us + MORE_US < latest_us ? now_us + MORE_US : latest_us;
    }
    return now_us < t->wait_until_us;
}

static void commit_or_grow(struct txn *t, bool more_comes, int64_t now_us) {
    route(t, 0, now_us);
    if (!is_complete(t)) {
        t->wait_until_us = 0;
        return;
    }
    if (waits_for_more(t, more_comes, now_us))
        return;
    failpoint_pass(FAILPOINT_TXN_COMMIT);
    commit(t);
}

static void call_again(struct txn *t) {
    if (t->call.kafka != NULL) /* it remembers how far it came */
        start_call(t);
    else
        submit(t, TXN_INIT, KAFKA_TXN_INIT); /* the last call was a forgotten producer's */
}

/* Nobody can end a call that librdkafka has lost, nor the producer in it: only a new process can go on. Time in which
 * we stood still ourselves does not count. */
static void watch(struct txn *t, int64_t now_us) {
    int64_t since_us = now_us - t->watched_us;
    t->called_for_us += since_us < STILL_US ? since_us : 0;
    t->watched_us = now_us;
    if (t->called_for_us < LOST_US)
        return;
    log_event(LOG_ERROR,
              "librdkafka does not come back from a transaction's call: ending, for another process to go on",
              log_int("seconds", LOST_US / 1000000), LOG_END);
    abort();
}

void txn_step(struct txn *t, bool can_begin, bool more_comes, int64_t now_us) {
    bool begins = t->state == TXN_READY && can_begin && now_us >= t->rest_until_us && has_open_rows(t);
    if (!begins)
        confirm(t);
    switch (t->state) {
    case TXN_OFF:
    case TXN_BROKEN:
        return;
    case TXN_READY:
        if (begins)
            begin(t, now_us);
        return;
    case TXN_OPEN:
        if (t->publisher->has_failed)
            submit(t, TXN_ABORT, KAFKA_TXN_ABORT); /* the client sends nothing more: waiting would be in vain */
        else
            commit_or_grow(t, more_comes, now_us);
        return;
    case TXN_INIT:
    case TXN_COMMIT:
    case TXN_ABORT:
        if (t->is_calling)
            watch(t, now_us);
        else if (now_us >= t->retry_us)
            call_again(t);
        return;
    }
}

int64_t txn_wake_us(const struct txn *t) {
    if (t->confirm_id > 0 || (t->state == TXN_OPEN && t->goes_on))
        return 0;
    if (t->state == TXN_OPEN && t->wait_until_us > 0)
        return t->wait_until_us;
    return t->state == TXN_READY && t->rest_until_us > loop_now_us() ? t->rest_until_us : INT64_MAX;
}
