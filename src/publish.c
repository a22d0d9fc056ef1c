/* publish.c: sends rows through one gate a partition, so that nothing of a key overtakes a row of it that failed. */
#include "denpyo/publish.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/failpoint.h"
#include "denpyo/loop.h"
#include "denpyo/outcome.h"
#include "denpyo/route.h"

/* A partition's group is a request of its own, and a broker is sent few requests at a time: more groups on their way
 * would only be small ones, while the rows of a lane that waits for its turn become one large one. */
#define GROUPS_AT_ONCE 64
#define GROUPS_TOGETHER 32     /* turns given out at a time: each time librdkafka's thread walks all partitions */
#define GATHER_US 5000         /* a turn that is free waits at most so long for others: what keeps them may be slow */
#define STALLED_US 20000       /* none of them was answered for so long: they are not to keep the others waiting */
#define ROW_OVERHEAD_BYTES 100 /* record framing, the id header: a generous share of a group's limit */

void publish_init(struct publisher *p, const struct publish_options *options, struct worker *worker) {
    *p = (struct publisher){.options = *options, .worker = worker, .seed = (uint32_t)loop_now_us()};
    topics_init(&p->topics);
    holds_init(&p->holds);
    p->holds.by_rejected = options->holds_rejected;
    overdue_init(&p->overdue, options->close_ms);
}

void publish_free(struct publisher *p) {
    holds_free(&p->holds);
    overdue_free(&p->overdue);
    topics_free(&p->topics);
    envelope_headers_free(&p->headers);
    free(p->header_list);
}

void publish_attach(struct publisher *p, struct kafka *kafka) {
    p->kafka = kafka;
    p->most_groups = GROUPS_AT_ONCE;
}

static void leave_transaction(struct publisher *p) {
    p->is_open = p->is_ending = p->has_failed = false;
}

struct kafka *publish_silence(struct publisher *p) {
    struct kafka *kafka = p->kafka;
    for (struct topic *t = topics_next(&p->topics, NULL); t != NULL; t = topics_next(&p->topics, t)) {
        kafka_topic_close(t->handle);
        t->handle = NULL;
    }
    if (p->lookup != NULL)
        p->lookup->context = NULL; /* nobody waits for it any more */
    p->lookup = NULL;
    p->kafka = NULL;
    return kafka;
}

struct kafka *publish_detach(struct publisher *p) {
    struct kafka *kafka = publish_silence(p);
    holds_clear(&p->holds);
    overdue_renew(&p->overdue, &p->topics);
    p->listed_first = p->listed_last = NULL;
    p->wanted = p->changing = 0;
    p->stuck = NULL;
    p->broken = NULL;
    p->must_look_up = false;
    p->in_flight = p->acknowledged = p->groups = p->listed = 0;
    p->full_since_us = p->gather_since_us = 0;
    leave_transaction(p);
    return kafka;
}

void publish_list(struct publisher *p, struct lane *lane) {
    if (lane->listed || lane->group_open > 0)
        return;
    lane->listed = true;
    lane->next = NULL;
    if (p->listed_last != NULL)
        p->listed_last->next = lane;
    else
        p->listed_first = lane;
    p->listed_last = lane;
    p->listed++;
}

void publish_close(struct row *row, enum row_outcome outcome) {
    batch_close_row(row, outcome);
    row->topic->in_lanes--;
}

void publish_hold(struct publisher *p, struct hold *hold, struct row *row) {
    holds_keep(&p->holds, hold, row);
    row->topic->in_lanes--;
    p->held++;
}

/* The row's own headers as the driver wants them; false when they cannot be headers: the row is rejected. */
static bool take_headers(struct publisher *p, struct row *row, struct kafka_message *m) {
    struct fault f = {0};
    if (row->headers_size < 0)
        return true;
    if (!envelope_headers_parse(&p->headers, row->headers, (size_t)row->headers_size, &f)) {
        outcome_reject(p, row, f.code, "%s", f.text);
        return false;
    }
    if (p->headers.count > p->header_capacity) {
        p->header_capacity = p->headers.count * 2;
        p->header_list = realloc(p->header_list, p->header_capacity * sizeof *p->header_list);
        if (p->header_list == NULL)
            abort();
    }
    for (size_t i = 0; i < p->headers.count; i++) {
        const struct envelope_header *h = &p->headers.items[i];
        p->header_list[i] = (struct kafka_header){h->name, h->name_size, h->value, h->value_size};
    }
    m->headers = p->header_list;
    m->header_count = p->headers.count;
    return true;
}

/* Hands one row to librdkafka. FULL leaves it with the caller, not to be sent now; otherwise it is in flight or
 * closed. */
static enum kafka_produced send_row(struct publisher *p, struct lane *lane, struct row *row) {
    struct hold *hold = holds_check(&p->holds, row);
    if (hold != NULL) {
        publish_hold(p, hold, row);
        return KAFKA_REFUSED;
    }
    char id[ENVELOPE_ID_SIZE];
    envelope_id(row->message_id, id);
    struct kafka_message m = {
        .topic = row->topic->handle,
        .partition = lane->partition,
        .key = row->key,
        .key_size = row->key_size > 0 ? (size_t)row->key_size : 0,
        .value = row->value,
        .value_size = row->value_size > 0 ? (size_t)row->value_size : 0,
        .id = id,
        .opaque = row,
    };
    if (!take_headers(p, row, &m))
        return KAFKA_REFUSED;
    int code;
    enum kafka_produced produced = kafka_produce(p->kafka, &m, &code);
    if (produced == KAFKA_QUEUED) {
        row->is_sent = true;
        lane->group_size++;
        lane->group_open++;
        p->in_flight++;
        failpoint_pass(FAILPOINT_PRODUCE_ROW);
    } else if (produced == KAFKA_REFUSED && !outcome_refused(p, row, code)) {
        return KAFKA_FULL;
    }
    return produced;
}

/* Bytes a row counts for in its group's limit. */
static int64_t weight(const struct row *row) {
    int64_t size = ROW_OVERHEAD_BYTES;
    size += row->key_size > 0 ? row->key_size : 0;
    size += row->value_size > 0 ? row->value_size : 0;
    return size + (row->headers_size > 0 ? row->headers_size : 0);
}

/* Takes from the lane what the next group may have at most. */
static void take_group(struct publisher *p, struct lane *lane, struct row_queue *group) {
    int64_t bytes = 0, most = kafka_group_max_bytes(p->kafka);
    size_t limit = lane->limit;
    while (group->count < limit) {
        struct row_queue *from = topic_lane_next(lane);
        if (from == NULL)
            return;
        uint32_t own_limit = from->first->group_limit;
        if (own_limit > 0 && own_limit < limit)
            limit = own_limit;
        if (group->count >= limit)
            return;
        bytes += weight(from->first);
        if (bytes > most && group->count > 0)
            return;
        queue_push(group, queue_pop(from));
    }
}

/* Sends a group; what librdkafka has no room for goes back to the head of the lane. */
static bool send_group(struct publisher *p, struct lane *lane, struct row_queue *group) {
    bool full = false;
    lane->group_size = 0;
    struct row_queue left = {0};
    struct row *row;
    while ((row = queue_pop(group)) != NULL) {
        if (group->first != NULL) { /* they were read a page ago: they are asked for before they are needed */
            __builtin_prefetch(group->first->message_id);
            __builtin_prefetch(group->first->next);
        }
        if (full || send_row(p, lane, row) == KAFKA_FULL) {
            full = true;
            queue_push(&left, row);
        }
    }
    outcome_put_back(lane, &left);
    p->groups += lane->group_open > 0;
    return !full;
}

#define LANES_AT_ONCE 64
#define SMALL_GROUP 32 /* rows of which it is looked whether they share a key */

/* Whether the group has to be one MessageSet, lest a later row of a key be taken while an earlier one is refused.
 * Holding a partition back is not free: it asks librdkafka's main thread twice, and waits. */
static bool must_be_whole(const struct row_queue *group) {
    if (group->count > SMALL_GROUP)
        return true;
    for (const struct row *a = group->first; a != NULL; a = a->next)
        for (const struct row *b = a->next; a->key != NULL && b != NULL; b = b->next)
            if (b->key != NULL && a->key_size == b->key_size && memcmp(a->key, b->key, (size_t)a->key_size) == 0)
                return true;
    return false;
}

/* Forms groups for the listed lanes; one in which a key repeats is held back until it is whole. */
static bool send_some(struct publisher *p) {
    struct lane *lanes[LANES_AT_ONCE];
    struct row_queue groups[LANES_AT_ONCE];
    size_t count = 0;
    size_t most = p->most_groups - p->groups < LANES_AT_ONCE ? p->most_groups - p->groups : LANES_AT_ONCE;
    while (count < most && p->listed_first != NULL) {
        struct lane *lane = p->listed_first;
        p->listed_first = lane->next;
        if (p->listed_first == NULL)
            p->listed_last = NULL;
        lane->listed = false;
        p->listed--;
        groups[count] = (struct row_queue){0};
        take_group(p, lane, &groups[count]);
        if (must_be_whole(&groups[count]))
            kafka_pause_add(p->kafka, lane->topic->handle, lane->partition);
        lanes[count++] = lane;
    }
    kafka_pause(p->kafka);
    bool room = true;
    int64_t now = loop_now_us();
    for (size_t i = 0; i < count; i++) {
        lanes[i]->sent_us = now;
        room = send_group(p, lanes[i], &groups[i]) && room;
        /* All of the group may have been closed at once: the lane must not be forgotten. */
        if (lanes[i]->group_open == 0 && topic_lane_next(lanes[i]) != NULL)
            publish_list(p, lanes[i]);
    }
    kafka_release(p->kafka);
    failpoint_pass(FAILPOINT_PRODUCE_GROUP);
    return room;
}

void publish_batch(struct publisher *p, struct batch *batch) {
    if (!p->is_transactional)
        publish_route(p, batch);
}

/* Rows that were given up while they were on their way: they may have arrived since. */
static bool has_unsure(const struct batch *batch) {
    for (size_t i = 0; i < batch->count; i++)
        if (batch->rows[i].is_unsure && batch->rows[i].outcome == ROW_OPEN)
            return true;
    return false;
}

void publish_claimed(struct publisher *p, struct batch *batch) {
    for (size_t i = 0; i < batch->count && batch->is_retry; i++) {
        holds_take(&p->holds, &batch->rows[i]);
        if (batch->rows[i].is_unsure)
            overdue_claimed(p, &batch->rows[i]);
    }
    if ((p->options.on_unknown != PUBLISH_RESEND || p->is_transactional) && has_unsure(batch))
        p->must_look_up = true; /* and none of it is sent before */
    else
        publish_batch(p, batch);
}

void publish_route(struct publisher *p, struct batch *batch) {
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->rows[i].outcome != ROW_OPEN)
            continue; /* found in the topic after a restart */
        batch->rows[i].topic->in_lanes++;
        route_row(p, &batch->rows[i]);
    }
}

static bool may_send(const struct publisher *p) {
    return p->broken == NULL && (!p->is_transactional || (p->is_open && !p->has_failed && !p->is_ending));
}

/* Whether more groups may go: all that wait, or a good number of them. Where all that are on their way go unanswered,
 * as those of a broker that is away do, as many more may. */
static bool has_turn(struct publisher *p) {
    size_t most = p->most_groups < GROUPS_TOGETHER ? p->most_groups : GROUPS_TOGETHER;
    size_t next = p->listed < most ? p->listed : most;
    if (p->groups + next <= p->most_groups)
        return true;
    int64_t now = loop_now_us();
    if (p->groups < p->most_groups) {
        if (p->gather_since_us == 0)
            p->gather_since_us = now;
        if (now >= p->gather_since_us + GATHER_US)
            return true;
    }
    if (p->full_since_us == 0)
        p->full_since_us = now;
    if (now < p->full_since_us + STALLED_US)
        return false;
    p->most_groups = p->groups + GROUPS_AT_ONCE;
    p->full_since_us = 0;
    return true;
}

static void end_turn(struct publisher *p) {
    p->groups--;
    p->full_since_us = 0;
    size_t most = p->groups + GROUPS_AT_ONCE;
    if (most < p->most_groups)
        p->most_groups = most;
}

void publish_step(struct publisher *p) {
    if (p->kafka == NULL)
        return;
    route_look_up(p);
    while (p->listed_first != NULL && may_send(p) && has_turn(p)) {
        p->gather_since_us = 0;
        if (!send_some(p))
            break; /* librdkafka's queue is full: go on after the next report */
    }
}

int64_t publish_wake_us(const struct publisher *p) {
    int64_t wake = route_wake_us(p);
    if (p->listed_first == NULL || !may_send(p)) /* a time that has passed would make the loop spin */
        return wake;
    if (p->full_since_us > 0 && p->full_since_us + STALLED_US < wake)
        wake = p->full_since_us + STALLED_US;
    if (p->gather_since_us > 0 && p->gather_since_us + GATHER_US < wake)
        wake = p->gather_since_us + GATHER_US;
    return wake;
}

static void confirm(struct publisher *p, struct row *row) {
    publish_close(row, ROW_DISPATCHED);
    holds_resolve(&p->holds, row);
    p->dispatched++;
}

void publish_committed(struct publisher *p) {
    leave_transaction(p);
}

void publish_confirm(struct publisher *p, struct batch *first, int64_t upto_id) {
    for (struct batch *b = first; b != NULL && b->id <= upto_id && p->acknowledged > 0; b = b->next)
        for (size_t i = 0; i < b->count; i++)
            if (b->rows[i].is_acknowledged) {
                b->rows[i].is_acknowledged = false;
                p->acknowledged--;
                confirm(p, &b->rows[i]);
            }
}

void publish_take_back(struct publisher *p, struct batch *first) {
    assert(p->in_flight == 0);
    /* All groups are decided, so `refused` is free to gather each lane's rows in their order. */
    for (struct batch *b = first; b != NULL; b = b->next)
        for (size_t i = 0; i < b->count; i++) {
            struct row *row = &b->rows[i];
            if (row->is_sent && row->outcome == ROW_OPEN)
                queue_push(&row->topic->lanes[row->partition].refused, row);
        }
    for (struct topic *t = topics_next(&p->topics, NULL); t != NULL; t = topics_next(&p->topics, t))
        for (int32_t i = 0; t->lanes != NULL && i < t->partitions; i++) {
            outcome_put_back(&t->lanes[i], &t->lanes[i].refused);
            if (topic_lane_next(&t->lanes[i]) != NULL)
                publish_list(p, &t->lanes[i]);
        }
    p->acknowledged = 0;
    leave_transaction(p);
}

void publish_report(void *publisher, const struct kafka_report *report) {
    struct publisher *p = publisher;
    struct row *row = report->opaque;
    struct lane *lane = &row->topic->lanes[row->partition];
    p->in_flight--;
    if (row->is_overdue) {
        row->topic->in_lanes--;
        overdue_report(&p->overdue, row, report);
    } else if (report->delivery == KAFKA_ACKNOWLEDGED) {
        row->offset = report->offset;
        if (p->is_transactional) {
            row->is_acknowledged = true;
            p->acknowledged++;
        } else {
            confirm(p, row);
        }
    } else {
        p->has_failed = p->is_transactional;
        row->code = report->code;
        row->is_unsure = report->delivery == KAFKA_MAYBE_PERSISTED;
        queue_push(&lane->refused, row);
    }
    failpoint_pass(FAILPOINT_REPORT_TAKEN);
    assert(lane->group_open > 0);
    if (--lane->group_open > 0)
        return;
    end_turn(p);
    lane->is_overdue = false;
    if (report->delivery == KAFKA_ACKNOWLEDGED)
        p->overdue.acked_us = loop_now_us();
    outcome_of_group(p, lane);
    failpoint_pass(FAILPOINT_GROUP_DECIDED);
    if (topic_lane_next(lane) != NULL)
        publish_list(p, lane);
}
