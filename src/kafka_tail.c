/* kafka_tail.c: consumes the ends of partitions on the worker and matches message ids. */
#include "denpyo/kafka_tail.h"

#include <librdkafka/rdkafka.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/failpoint.h"
#include "denpyo/kafka_consumer.h"
#include "denpyo/kafka_mark.h"

#define MESSAGES_AT_ONCE 1000
#define CALL_TIMEOUT_MS 5000
#define IDLE_WAIT_MS 200

/* One partition that is being read. */
struct part {
    struct kafka_tail_topic *topic;
    int32_t topic_index;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    int64_t next, end; /* read up to next; the end as last asked */
    bool is_started;
};

struct reader {
    struct kafka_tail *tail;
    rd_kafka_t *rk;
    rd_kafka_queue_t *queue;
    struct part *parts;
    size_t part_count;
    rd_kafka_topic_t **rkts;
    int64_t deadline_ms;
};

static int64_t now_ms(void) {
    return loop_now_us() / 1000;
}

struct kafka_tail *kafka_tail_new(size_t topic_count, size_t wanted_count) {
    struct kafka_tail *tail = calloc(1, sizeof *tail);
    if (tail == NULL)
        abort();
    tail->topics = calloc(topic_count + 1, sizeof *tail->topics);
    tail->wanted = calloc(wanted_count + 1, sizeof *tail->wanted);
    if (tail->topics == NULL || tail->wanted == NULL)
        abort();
    tail->topic_count = topic_count;
    tail->wanted_count = wanted_count;
    return tail;
}

void kafka_tail_free(struct kafka_tail *tail) {
    if (tail == NULL)
        return;
    for (size_t i = 0; i < tail->topic_count; i++) {
        free(tail->topics[i].name);
        free(tail->topics[i].starts);
        free(tail->topics[i].mark);
        free(tail->topics[i].is_away);
    }
    free(tail->topics);
    free(tail->wanted);
    free(tail);
}

/* ---- ids ---- */

static int compare_wanted(const void *a, const void *b) {
    return memcmp(a, b, 16); /* id is the first member */
}

static int digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The 36 characters of an id header to 16 bytes; false when it is none. */
static bool parse_id(const char *text, size_t size, unsigned char out[16]) {
    size_t n = 0;
    if (size != 36)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (i == 8 || i == 13 || i == 18 || i == 23) {
            if (text[i] != '-')
                return false;
            continue;
        }
        int d = digit(text[i]);
        if (d < 0)
            return false;
        out[n / 2] = (unsigned char)(n % 2 == 0 ? d << 4 : out[n / 2] | d);
        n++;
    }
    return true;
}

static void match(struct reader *r, const struct part *part, rd_kafka_message_t *m) {
    rd_kafka_headers_t *headers;
    const void *value;
    size_t size;
    unsigned char id[16];
    atomic_fetch_add_explicit(&r->tail->read, 1, memory_order_relaxed);
    if (rd_kafka_message_headers(m, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR ||
        rd_kafka_header_get(headers, 0, "id", &value, &size) != RD_KAFKA_RESP_ERR_NO_ERROR || value == NULL ||
        !parse_id(value, size, id))
        return;
    struct kafka_tail_wanted *w =
        bsearch(id, r->tail->wanted, r->tail->wanted_count, sizeof *r->tail->wanted, compare_wanted);
    if (w == NULL || w->offset >= 0 || w->topic != part->topic_index)
        return;
    w->partition = m->partition;
    w->offset = m->offset;
    r->tail->found++;
}

/* ---- the consumer ---- */

static bool is_over(struct reader *r) {
    if (atomic_load(&r->tail->is_cancelled))
        return !fault_set(&r->tail->fault, FAULT_RETRY, "cancelled", "the look-up was given up");
    if (now_ms() < r->deadline_ms)
        return false;
    return !fault_set(&r->tail->fault, FAULT_RETRY, "timeout", "the look-up did not come to an end within %d ms",
                      r->tail->timeout_ms);
}

static void mark_unreadable(struct kafka_tail_topic *topic, rd_kafka_resp_err_t err) {
    topic->is_unreadable = true;
    topic->code = err;
}

/* A code that waiting does not heal says that the topic cannot be read at all. */
static bool is_lasting(rd_kafka_resp_err_t err) {
    return err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART || err == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC ||
           err == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION || err == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
}

static void note_away(struct kafka_tail_topic *topic, int32_t partition, int32_t partitions) {
    if (topic->is_away == NULL && (topic->is_away = calloc((size_t)partitions, sizeof *topic->is_away)) == NULL)
        abort();
    topic->partitions = partitions;
    topic->is_away[partition] = true;
}

/* The topic's partitions at this moment; false when no broker answered. */
static bool list_parts(struct reader *r, size_t index) {
    struct kafka_tail_topic *topic = &r->tail->topics[index];
    const struct rd_kafka_metadata *md = NULL;
    r->rkts[index] = rd_kafka_topic_new(r->rk, topic->name, NULL);
    rd_kafka_resp_err_t err = rd_kafka_metadata(r->rk, 0, r->rkts[index], &md, CALL_TIMEOUT_MS);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
        return fault_set(&r->tail->fault, FAULT_RETRY, "broker", "%s", rd_kafka_err2str(err));
    if (md->topic_cnt != 1 || md->topics[0].err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        mark_unreadable(topic, md->topic_cnt == 1 ? md->topics[0].err : RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    } else {
        size_t count = (size_t)md->topics[0].partition_cnt;
        r->parts = realloc(r->parts, (r->part_count + count) * sizeof *r->parts);
        if (r->parts == NULL)
            abort();
        for (size_t i = 0; i < count; i++) {
            if (!r->tail->is_read_committed && md->topics[0].partitions[i].leader < 0) {
                note_away(topic, (int32_t)i, (int32_t)count);
                continue;
            }
            r->parts[r->part_count++] = (struct part){.topic = topic,
                                                      .topic_index = (int32_t)index,
                                                      .rkt = r->rkts[index],
                                                      .partition = (int32_t)i,
                                                      .next = -1};
        }
    }
    rd_kafka_metadata_destroy(md);
    return true;
}

static int64_t recorded_start(const struct kafka_tail_topic *topic, int32_t partition) {
    for (size_t i = 0; i < topic->start_count; i++)
        if (topic->starts[i].partition == partition)
            return topic->starts[i].offset;
    return -1;
}

/* By time where no receipt says where to begin. */
static rd_kafka_resp_err_t start_by_time(struct reader *r, struct part *p, int64_t high) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, p->topic->name, p->partition)->offset = r->tail->since_ms;
    rd_kafka_resp_err_t err = rd_kafka_offsets_for_times(r->rk, list, CALL_TIMEOUT_MS);
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
        err = list->elems[0].err;
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR) /* -1: nothing so young */
        p->next = list->elems[0].offset >= 0 ? list->elems[0].offset : high;
    rd_kafka_topic_partition_list_destroy(list);
    return err;
}

/* Asks for the partition's end, and at first sight finds where to begin. */
static bool measure(struct reader *r, struct part *p) {
    int64_t low, high;
    rd_kafka_resp_err_t err =
        rd_kafka_query_watermark_offsets(r->rk, p->topic->name, p->partition, &low, &high, CALL_TIMEOUT_MS);
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR && p->next < 0) {
        int64_t start = recorded_start(p->topic, p->partition);
        if (start >= 0 && start <= high) /* above the end: another topic of the same name */
            p->next = start > low ? start : low;
        else
            err = start_by_time(r, p, high);
        /* The log begins where we do: what stood before is gone, and may have been ours. */
        if (low > 0 && (p->next <= low || low == high) && start != low)
            p->topic->is_cut = true;
    }
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        p->end = high;
        return true;
    }
    if (is_lasting(err)) {
        mark_unreadable(p->topic, err);
        return true;
    }
    return fault_set(&r->tail->fault, FAULT_RETRY, "broker", "topic %s partition %d: %s", p->topic->name, p->partition,
                     rd_kafka_err2str(err));
}

static struct part *part_of(struct reader *r, const rd_kafka_message_t *m) {
    for (size_t i = 0; i < r->part_count; i++)
        if (r->parts[i].rkt == m->rkt && r->parts[i].partition == m->partition)
            return &r->parts[i];
    return NULL;
}

static void take(struct reader *r, rd_kafka_message_t *m, struct part **last) {
    if (*last == NULL || (*last)->rkt != m->rkt || (*last)->partition != m->partition)
        *last = part_of(r, m);
    struct part *p = *last;
    if (p == NULL)
        return;
    if (m->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        match(r, p, m);
        failpoint_pass(FAILPOINT_LOOKUP_RECORD);
        p->next = m->offset + 1;
    } else if (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        /* Offsets may end with a control record that is never handed out: the end is where the consumer says it is. */
        p->next = m->offset > p->next ? m->offset : p->next;
    } else if (is_lasting(m->err)) {
        mark_unreadable(p->topic, m->err);
    }
}

static bool has_more(const struct reader *r) {
    for (size_t i = 0; i < r->part_count; i++)
        if (!r->parts[i].topic->is_unreadable && r->parts[i].next < r->parts[i].end)
            return true;
    return false;
}

/* Reads until every partition has reached the end that was measured. */
static bool read_to_ends(struct reader *r) {
    rd_kafka_message_t *messages[MESSAGES_AT_ONCE];
    struct part *last = NULL;
    for (size_t i = 0; i < r->part_count; i++) {
        struct part *p = &r->parts[i];
        if (p->topic->is_unreadable || p->is_started || p->next >= p->end)
            continue;
        if (rd_kafka_consume_start_queue(p->rkt, p->partition, p->next, r->queue) != 0)
            return fault_set(&r->tail->fault, FAULT_RETRY, "broker", "topic %s partition %d: %s", p->topic->name,
                             p->partition, rd_kafka_err2str(rd_kafka_last_error()));
        p->is_started = true;
    }
    while (has_more(r)) {
        if (is_over(r))
            return false;
        ssize_t count = rd_kafka_consume_batch_queue(r->queue, IDLE_WAIT_MS, messages, MESSAGES_AT_ONCE);
        for (ssize_t i = 0; i < count; i++) {
            take(r, messages[i], &last);
            rd_kafka_message_destroy(messages[i]);
        }
    }
    return true;
}

/* The old producer's last requests may still be on their way into the log: read on until the ends stand still. */
static bool read_until_still(struct reader *r) {
    int64_t still_since = now_ms();
    do {
        for (size_t i = 0; i < r->part_count; i++) {
            struct part *p = &r->parts[i];
            int64_t before = p->end;
            if (p->topic->is_unreadable)
                continue;
            if (!measure(r, p))
                return false;
            if (p->end != before)
                still_since = now_ms();
        }
        if (!read_to_ends(r) || is_over(r))
            return false;
        rd_kafka_poll(r->rk, 20);
    } while (now_ms() < still_since + r->tail->settle_ms);
    return true;
}

static void close_reader(struct reader *r) {
    for (size_t i = 0; i < r->part_count; i++)
        if (r->parts[i].is_started)
            rd_kafka_consume_stop(r->parts[i].rkt, r->parts[i].partition);
    for (size_t i = 0; i < r->tail->topic_count; i++)
        if (r->rkts[i] != NULL)
            rd_kafka_topic_destroy(r->rkts[i]);
    rd_kafka_queue_destroy(r->queue);
    rd_kafka_destroy(r->rk);
    free(r->rkts);
    free(r->parts);
}

static void look_up(struct worker_job *job) {
    struct kafka_tail *tail = (struct kafka_tail *)job;
    struct reader r = {.tail = tail, .deadline_ms = now_ms() + tail->timeout_ms};
    tail->fault = (struct fault){0};
    qsort(tail->wanted, tail->wanted_count, sizeof *tail->wanted, compare_wanted);
    for (size_t i = 0; i < tail->wanted_count; i++)
        tail->wanted[i].offset = -1;
    for (size_t i = 0; i < tail->topic_count; i++) {
        free(tail->topics[i].is_away);
        tail->topics[i].is_away = NULL;
    }
    if (tail->options->transactional_id != NULL && !kafka_mark_read(tail))
        return;
    r.rk = kafka_consumer_open(tail->options, NULL, tail->is_read_committed, &tail->fault);
    if (r.rk == NULL)
        return;
    r.queue = rd_kafka_queue_new(r.rk);
    r.rkts = calloc(tail->topic_count + 1, sizeof *r.rkts);
    if (r.rkts == NULL)
        abort();
    bool goes_on = true;
    for (size_t i = 0; i < tail->topic_count && goes_on; i++)
        goes_on = list_parts(&r, i);
    if (goes_on)
        read_until_still(&r);
    close_reader(&r);
}

static void looked_up(struct worker_job *job) {
    struct kafka_tail *tail = (struct kafka_tail *)job;
    tail->done(tail);
}

void kafka_tail_submit(struct kafka_tail *tail, struct worker *worker) {
    tail->job.run = look_up;
    tail->job.done = looked_up;
    worker_submit(worker, &tail->job);
}
