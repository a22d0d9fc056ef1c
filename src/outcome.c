/* outcome.c: decides what becomes of rows that the broker or its client refused. */
#include "denpyo/outcome.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "denpyo/log.h"
#include "denpyo/outcome_table.h"
#include "denpyo/retry.h"
#include "denpyo/route.h"

#define SUSPECT_FACTOR 16 /* each abort costs a round through the coordinator: few steps to the guilty row */

static uint32_t random_bits(struct publisher *p) {
    /* xorshift32 (Marsaglia, "Xorshift RNGs", 2003): jitter needs no more. */
    p->seed ^= p->seed << 13;
    p->seed ^= p->seed >> 17;
    p->seed ^= p->seed << 5;
    return p->seed;
}

void outcome_put_back(struct lane *lane, struct row_queue *rows) {
    struct row_queue retried = {0}, others = {0};
    struct row *row;
    while ((row = queue_pop(rows)) != NULL) {
        row->is_sent = row->is_acknowledged = false;
        queue_push(row->batch->is_retry ? &retried : &others, row);
    }
    queue_prepend(&lane->retried, &retried);
    queue_prepend(&lane->urgent, &others);
}

/* Once a message: afterwards outcome tables tell, not the log. */
static void log_row(enum log_level level, const char *event, const struct row *row) {
    char id[ENVELOPE_ID_SIZE + 1] = "";
    envelope_id(row->message_id, id);
    log_event(level, event, log_int("id", row->id), log_str("message_id", id), log_str("topic", row->topic->name),
              log_str("code", row->trouble->code), log_str("error", row->trouble->text), LOG_END);
}

/* An earlier row of its key or topic is in trouble or on its way again: this one only waits for it. */
static bool wait_for_earlier(struct publisher *p, struct row *row) {
    struct hold *hold = holds_check(&p->holds, row);
    if (hold == NULL)
        return false;
    publish_hold(p, hold, row);
    return true;
}

static void reject(struct publisher *p, struct row *row, const char *code, const char *text) {
    if (p->holds.by_rejected && wait_for_earlier(p, row))
        return;
    batch_set_trouble(row, SCOPE_KEY, code, "%s", text);
    row->attempts++;
    log_row(LOG_ERROR, "message rejected: a person decides", row);
    publish_close(row, ROW_REJECTED);
    holds_reject(&p->holds, row);
    p->rejected++;
}

void outcome_reject(struct publisher *p, struct row *row, const char *code, const char *format, ...) {
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    reject(p, row, code, text);
}

/* A topic that is there but refuses, for want of a right, tells nobody when it no longer does: it is tried about once a
 * second. */
static int64_t delay_ms(struct publisher *p, const struct row *row, enum row_scope scope) {
    int64_t delay = retry_delay_ms(row->attempts, p->options.retry_initial_ms, p->options.retry_max_ms, random_bits(p));
    bool is_probe = scope == SCOPE_TOPIC && row->topic->state == TOPIC_READY;
    return is_probe && delay > p->options.absent_probe_ms ? p->options.absent_probe_ms : delay;
}

void outcome_fail(struct publisher *p, struct row *row, enum row_scope scope, const char *code, const char *format,
                  ...) {
    if (wait_for_earlier(p, row))
        return;
    char text[260];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (scope == SCOPE_KEY && p->options.retry_max_attempts > 0 && row->attempts + 1 >= p->options.retry_max_attempts) {
        outcome_reject(p, row, code, "%s; given up after %d attempts", text, (int)row->attempts + 1);
        return;
    }
    batch_set_trouble(row, scope, code, "%s", text);
    row->attempts++;
    row->trouble->delay_ms = delay_ms(p, row, scope);
    if (row->attempts == 1)
        log_row(LOG_WARN, "message failed, will be tried again", row);
    publish_close(row, ROW_FAILED);
    holds_block(&p->holds, row);
    p->failed++;
}

static int at_least_0(int size) {
    return size > 0 ? size : 0; /* negative: there is none */
}

static void reject_as_message(struct publisher *p, struct row *row, int code) {
    if (code == KAFKA_CODE_TOO_LARGE)
        outcome_reject(p, row, kafka_code_name(code),
                       "%s: payload %d bytes, key %d, headers %d; this client sends at most %lld "
                       "(kafka.message.max.bytes), the topic accepts %lld (max.message.bytes; 0 = not known)",
                       kafka_code_text(code), at_least_0(row->value_size), at_least_0(row->key_size),
                       at_least_0(row->headers_size), (long long)kafka_message_max_bytes(p->kafka),
                       (long long)row->topic->max_message_bytes);
    else if (row->key == NULL)
        outcome_reject(p, row, kafka_code_name(code),
                       "%s: it has no key, which a topic with cleanup.policy=compact refuses", kafka_code_text(code));
    else
        outcome_reject(p, row, kafka_code_name(code), "%s", kafka_code_text(code));
}

/* No message can go through this producer: nothing is sent until the relay has made another. */
static void break_producer(struct publisher *p, const struct outcome_table_row *why, int code) {
    if (p->broken != NULL)
        return;
    p->broken = why;
    p->broken_code = code;
}

static void log_refusal(const char *event, const struct outcome_table_row *verdict, int code) {
    log_event(LOG_DEBUG, event, log_str("code", kafka_code_name(code)), log_str("meaning", verdict->sentence), LOG_END);
}

/* What the table says of a row that is alone in what was refused. False: the row is still open, to be put back. */
static bool apply(struct publisher *p, struct row *row, const struct outcome_table_row *verdict, int code) {
    switch (verdict->becomes) {
    case OUTCOME_REJECTED:
        reject_as_message(p, row, code);
        return true;
    case OUTCOME_FAILED:
    case OUTCOME_TOPIC:
        if (verdict->becomes == OUTCOME_TOPIC)
            route_ask(p, row->topic);
        outcome_fail(p, row, verdict->becomes == OUTCOME_TOPIC ? SCOPE_TOPIC : SCOPE_KEY, kafka_code_name(code),
                     "topic %s: %s", row->topic->name, kafka_code_text(code));
        return true;
    case OUTCOME_RELAY:
    case OUTCOME_FATAL:
        break_producer(p, verdict, code);
        return false;
    case OUTCOME_UNKNOWN:
        if (!p->is_transactional) /* else its transaction is aborted: then nobody sees it */
            break_producer(p, verdict, code);
        return false;
    case OUTCOME_WAITS:
        p->has_failed = p->is_transactional;
        return false;
    case OUTCOME_DISPATCHED:
        break;
    }
    assert(!"what was dispatched was not refused");
    return false;
}

bool outcome_refused(struct publisher *p, struct row *row, int code) {
    const struct outcome_table_row *verdict = outcome_table_find(OUTCOME_REFUSED, code);
    log_refusal("refused at once", verdict, code);
    return apply(p, row, verdict, code);
}

/* A group is one MessageSet and has one fate; should its rows differ, that of which least is known counts for all. */
static const struct row *most_doubtful(const struct row_queue *rows) {
    for (const struct row *row = rows->first; row != NULL; row = row->next)
        if (row->is_unsure)
            return row;
    return rows->first;
}

/* The abort puts the innocent back, too, and all of it is sent again: the lane's limit would have grown by the time the
 * guilty one's turn comes. So each row of the set remembers how small its group must be. */
static void suspect(const struct row_queue *rows, size_t group_size) {
    for (struct row *row = rows->first; row != NULL; row = row->next)
        row->group_limit = (uint32_t)(group_size / SUSPECT_FACTOR > 0 ? group_size / SUSPECT_FACTOR : 1);
}

void outcome_of_group(struct publisher *p, struct lane *lane) {
    size_t most = (size_t)kafka_group_max_messages(p->kafka);
    if (lane->refused.first == NULL) {
        lane->limit = lane->limit * 2 < most ? lane->limit * 2 : most;
        return;
    }
    struct row_queue rows = lane->refused;
    lane->refused = (struct row_queue){0};
    const struct row *doubtful = most_doubtful(&rows);
    int code = doubtful->code;
    const struct outcome_table_row *verdict =
        outcome_table_find(doubtful->is_unsure ? OUTCOME_MAYBE_PERSISTED : OUTCOME_NOT_PERSISTED, code);
    log_refusal("refused", verdict, code);
    bool is_of_one = verdict->becomes == OUTCOME_FAILED || verdict->becomes == OUTCOME_REJECTED;
    if (is_of_one && lane->group_size > 1) {
        /* The whole set got the error of one: nobody is to blame until it was sent alone. */
        lane->limit = lane->group_size / 2;
        if (p->is_transactional)
            suspect(&rows, lane->group_size);
        outcome_put_back(lane, &rows);
        return;
    }
    /* Of a topic's rows the first fails, the others are held, one by one, when they come to the gate again. */
    struct row_queue first = {0};
    queue_push(&first, queue_pop(&rows));
    outcome_put_back(lane, &rows);
    if (!apply(p, first.first, verdict, code))
        outcome_put_back(lane, &first);
}
