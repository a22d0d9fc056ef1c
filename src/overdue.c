/* overdue.c: finds groups that nobody acknowledges, and carries their reports to the claim that takes them back. */
#include "denpyo/overdue.h"

#include <stdlib.h>
#include <string.h>

#include "denpyo/ledger.h"
#include "denpyo/log.h"
#include "denpyo/loop.h"
#include "denpyo/outcome.h"
#include "denpyo/publish.h"
#include "denpyo/route.h"

#define LOOK_US 200000       /* between two looks at the lanes */
#define ASK_AGAIN_US 1000000 /* for results whose rows did not come */
#define SILENCE_SHARE 4      /* of close_us, and */
#define SILENCE_US 1000000   /* so much more without an answer: the cluster is away */
#define ASK_SHARE 4          /* of close_us: after so long it is asked whether it is there */
#define NO_LEADER "whether the message arrived can be read when it is back"
#define CODE "NO_ACKNOWLEDGMENT"

void overdue_init(struct overdue *o, int64_t close_ms) {
    *o = (struct overdue){.close_us = close_ms * 1000};
}

void overdue_clear(struct overdue *o) {
    free(o->waits);
    o->waits = NULL;
    o->wait_count = o->wait_capacity = 0;
}

void overdue_renew(struct overdue *o, struct topics *topics) {
    char **names = calloc(o->wait_count + 1, sizeof *names);
    if (names == NULL)
        abort();
    for (size_t i = 0; i < o->wait_count; i++)
        if ((names[i] = strdup(o->waits[i].topic->name)) == NULL)
            abort();
    topics_free(topics);
    topics_init(topics);
    for (size_t i = 0; i < o->wait_count; i++) {
        o->waits[i].topic = topics_get(topics, names[i], strlen(names[i]));
        o->waits[i].topic->awaited++;
        free(names[i]);
    }
    free(names);
    free(o->results);
    *o = (struct overdue){.close_us = o->close_us,
                          .answering_us = o->answering_us,
                          .answered_us = o->answered_us,
                          .waits = o->waits,
                          .wait_count = o->wait_count,
                          .wait_capacity = o->wait_capacity};
}

void overdue_add_waiting(const struct overdue *o, struct pgarray *ids) {
    for (size_t i = 0; i < o->wait_count; i++)
        pgarray_add_int8(ids, o->waits[i].id);
}

void overdue_free(struct overdue *o) {
    free(o->results);
    free(o->waits);
}

void overdue_note_answer(struct overdue *o, bool has_answered, int64_t now_us) {
    if (has_answered) {
        o->answered_us = now_us;
        if (o->answering_us == 0)
            o->answering_us = now_us;
    } else if (now_us - o->answered_us > o->close_us / SILENCE_SHARE + SILENCE_US) {
        o->answering_us = 0;
    }
}

/* ---- who is overdue ---- */

/* The cluster has answered for as long as the group may wait: it is not the whole of it that is away. */
static bool cluster_answers(const struct publisher *p, int64_t now_us) {
    const struct overdue *o = &p->overdue;
    const char *reason;
    return !kafka_is_down(p->kafka, &reason) && o->answering_us != 0 && now_us - o->answering_us >= o->close_us &&
           now_us - o->answered_us <= o->close_us / SILENCE_SHARE + SILENCE_US;
}

/* Marks lanes. A lane whose group has part of its reports gets the others any moment. */
static size_t find_lanes(struct publisher *p, int64_t now_us) {
    bool answers = cluster_answers(p, now_us);
    size_t found = 0;
    for (struct topic *t = topics_next(&p->topics, NULL); t != NULL; t = topics_next(&p->topics, t))
        for (int32_t i = 0; t->lanes != NULL && t->in_lanes > 0 && i < t->partitions; i++) {
            struct lane *lane = &t->lanes[i];
            if (lane->group_open == 0 || lane->is_overdue || lane->refused.count > 0)
                continue;
            int64_t waits_us = now_us - lane->sent_us;
            if (waits_us > p->overdue.close_us / ASK_SHARE)
                route_ask(p, t); /* does the cluster answer? */
            if (answers && waits_us > p->overdue.close_us) {
                lane->is_overdue = true;
                found++;
            }
        }
    return found;
}

static struct lane *overdue_lane(const struct row *row) {
    if (row->outcome != ROW_OPEN || row->partition < 0 || row->topic->lanes == NULL ||
        row->partition >= row->topic->partitions)
        return NULL;
    struct lane *lane = &row->topic->lanes[row->partition];
    return lane->is_overdue ? lane : NULL;
}

static const char *last_reason(const struct publisher *p) {
    const char *reason;
    kafka_is_down(p->kafka, &reason);
    return reason[0] ? reason : "no reason was given";
}

/* ---- what librdkafka has leaves its batch ---- */

static void close_on_wire(struct publisher *p, struct row *row) {
    batch_set_trouble(row, SCOPE_PARTITION, CODE, "partition %d of topic %s has not acknowledged it for %lld ms: %s",
                      (int)row->partition, row->topic->name, (long long)(p->overdue.close_us / 1000), last_reason(p));
    row->is_overdue = true;
    row->batch->on_wire++;
    p->overdue.on_wire++;
    batch_close_row(row, ROW_UNSURE); /* it still counts in in_lanes: the lane must stay */
    holds_block(&p->holds, row);      /* the first of its group does; of the others nothing changes */
    row->hold = holds_owe(row);
}

static bool is_on_wire(const struct row *row) {
    return overdue_lane(row) != NULL && row->is_sent;
}

/* The lowest id of each lane's group holds the partition. */
static void block_partitions(struct publisher *p, struct batch *first) {
    for (struct batch *b = first; b != NULL; b = b->next)
        for (size_t i = 0; i < b->count && b->open > 0; i++) {
            struct row *row = &b->rows[i];
            if (is_on_wire(row) && (overdue_lane(row)->first == NULL || row->id < overdue_lane(row)->first->id))
                overdue_lane(row)->first = row;
        }
    for (struct batch *b = first; b != NULL; b = b->next)
        for (size_t i = 0; i < b->count && b->open > 0; i++) {
            struct row *row = &b->rows[i];
            struct lane *lane = overdue_lane(row);
            if (lane == NULL || lane->first != row)
                continue;
            close_on_wire(p, row);
            lane->first = NULL;
            log_event(LOG_WARN, "a partition acknowledges nothing: its messages stay requesting, the others go on",
                      log_str("topic", row->topic->name), log_int("partition", row->partition),
                      log_int("rows", (int64_t)lane->group_open), log_str("error", last_reason(p)), LOG_END);
        }
}

static void hold_waiting(struct publisher *p, struct lane *lane) {
    struct row_queue *from;
    while ((from = topic_lane_next(lane)) != NULL) {
        struct row *row = queue_pop(from);
        publish_hold(p, holds_check(&p->holds, row), row);
    }
    if (lane->topic->partitions_seen != lane->topic->partitions)
        route_backlog(p, lane->topic);
}

static void detach(struct publisher *p, struct batch *first) {
    block_partitions(p, first);
    for (struct batch *b = first; b != NULL; b = b->next)
        for (size_t i = 0; i < b->count && b->open > 0; i++)
            if (is_on_wire(&b->rows[i]))
                close_on_wire(p, &b->rows[i]);
    for (struct topic *t = topics_next(&p->topics, NULL); t != NULL; t = topics_next(&p->topics, t))
        for (int32_t i = 0; t->partition_holds != NULL && t->lanes != NULL && i < t->partitions; i++)
            if (t->lanes[i].is_overdue)
                hold_waiting(p, &t->lanes[i]);
}

void overdue_step(struct publisher *p, const struct ledger *ledger, int64_t now_us) {
    if (p->is_transactional || p->kafka == NULL || now_us < p->overdue.next_us)
        return;
    p->overdue.next_us = now_us + LOOK_US;
    if (p->in_flight > p->overdue.on_wire && find_lanes(p, now_us) > 0)
        detach(p, ledger->open.first);
    if (ledger->kept.bytes > (size_t)p->options.kept_bytes)
        p->must_look_up = true;
}

/* ---- what cannot be looked up ---- */

static void add_result(struct overdue *o, const struct row *row) {
    if (o->count == o->capacity) {
        o->capacity = o->capacity == 0 ? 256 : o->capacity * 2;
        o->results = realloc(o->results, o->capacity * sizeof *o->results);
        if (o->results == NULL)
            abort();
    }
    o->results[o->count++] = (struct overdue_result){
        row->id, row->offset, row->hold, row->partition, (enum kafka_delivery)row->delivery, false};
}

void overdue_await(struct publisher *p, struct row *row, int32_t partition) {
    bool is_any = partition == INT32_MAX;
    if (is_any)
        batch_set_trouble(row, SCOPE_KEY, "NO_LEADER", "a partition of topic %s has no leader: " NO_LEADER,
                          row->topic->name);
    else
        batch_set_trouble(row, SCOPE_PARTITION, "NO_LEADER", "partition %d of topic %s has no leader: " NO_LEADER,
                          (int)partition, row->topic->name);
    row->partition = is_any ? row->partition : partition;
    row->is_overdue = row->is_awaiting = true;
    batch_close_row(row, ROW_UNSURE);
    holds_block(&p->holds, row);
}

static void add_wait(struct overdue *o, const struct row *row) {
    if (o->wait_count == o->wait_capacity) {
        o->wait_capacity = o->wait_capacity == 0 ? 256 : o->wait_capacity * 2;
        o->waits = realloc(o->waits, o->wait_capacity * sizeof *o->waits);
        if (o->waits == NULL)
            abort();
    }
    int32_t partition = row->trouble->scope == SCOPE_PARTITION ? row->partition : INT32_MAX;
    o->waits[o->wait_count++] = (struct overdue_wait){row->id, row->topic, partition};
    row->topic->awaited++;
}

static bool can_be_read(const struct overdue_wait *w, int32_t count, const bool *has_leader) {
    if (w->partition < count)
        return has_leader[w->partition];
    for (int32_t i = 0; i < count; i++)
        if (!has_leader[i])
            return false;
    return true; /* also when the topic is gone */
}

void overdue_note_leaders(struct overdue *o, struct topic *topic, int32_t count, const bool *has_leader) {
    if (topic->awaited == 0 || count < 0)
        return;
    size_t left = 0;
    for (size_t i = 0; i < o->wait_count; i++) {
        const struct overdue_wait *w = &o->waits[i];
        if (w->topic == topic && can_be_read(w, count, has_leader)) {
            add_result(o, &(struct row){.id = w->id, .delivery = KAFKA_MAYBE_PERSISTED});
            topic->awaited--;
        } else {
            o->waits[left++] = *w;
        }
    }
    o->wait_count = left;
}

/* ---- reports, and the claim that takes the rows back ---- */

void overdue_report(struct overdue *o, struct row *row, const struct kafka_report *report) {
    row->offset = report->offset;
    row->delivery = (int)report->delivery;
    row->is_reported = true;
    o->on_wire--;
    row->batch->on_wire--;
    if (row->batch->is_kept)
        add_result(o, row);
}

bool overdue_settled(struct overdue *o, struct batch *batch) {
    for (size_t i = 0; i < batch->count; i++)
        if (batch->rows[i].is_reported)
            add_result(o, &batch->rows[i]);
        else if (batch->rows[i].is_awaiting)
            add_wait(o, &batch->rows[i]);
    batch->is_kept = true;
    return batch->on_wire > 0;
}

static int by_id(const void *a, const void *b) {
    int64_t x = ((const struct overdue_result *)a)->id, y = ((const struct overdue_result *)b)->id;
    return (x > y) - (x < y);
}

void overdue_list(struct overdue *o, struct pgarray *wanted) {
    size_t left = 0;
    for (size_t i = 0; i < o->count; i++)
        if (!o->results[i].is_taken)
            o->results[left++] = o->results[i];
    o->count = left;
    o->taken = 0;
    if (o->count > 0)
        qsort(o->results, o->count, sizeof *o->results, by_id);
    o->listed = o->count;
    for (size_t i = 0; i < o->count; i++)
        pgarray_add_int8(wanted, o->results[i].id);
}

bool overdue_has_results(const struct overdue *o, int64_t now_us) {
    return o->count > o->taken && now_us >= o->ask_us;
}

void overdue_missed(struct overdue *o, int64_t now_us) {
    if (o->listed > 0)
        o->ask_us = now_us + ASK_AGAIN_US;
}

void overdue_claimed(struct publisher *p, struct row *row) {
    struct overdue *o = &p->overdue;
    const struct overdue_result key = {.id = row->id};
    struct overdue_result *r = o->listed > 0 ? bsearch(&key, o->results, o->listed, sizeof *o->results, by_id) : NULL;
    if (r == NULL || r->is_taken)
        return;
    r->is_taken = true;
    o->taken++;
    if (r->delivery != KAFKA_MAYBE_PERSISTED)
        row->is_unsure = false;
    if (r->delivery == KAFKA_ACKNOWLEDGED) {
        row->partition = r->partition;
        row->offset = r->offset;
        batch_close_row(row, ROW_DISPATCHED);
        holds_resolve(&p->holds, row);
        p->dispatched++;
    }
    if (r->hold != NULL)
        holds_repay(&p->holds, r->hold);
}

bool overdue_is_stalled(const struct publisher *p, int64_t now_us) {
    return p->holds.partitions > 0 && now_us - p->overdue.acked_us > p->overdue.close_us;
}
