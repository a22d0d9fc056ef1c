/* kafka_lookup.c: asks the broker on the worker how many partitions topics have. */
#include "denpyo/kafka_lookup.h"

#include <librdkafka/rdkafka.h>
#include <stdlib.h>

static void note_leaders(struct kafka_lookup *l, size_t i, const struct rd_kafka_metadata_topic *t) {
    l->has_leader[i] = calloc((size_t)t->partition_cnt, sizeof **l->has_leader);
    if (l->has_leader[i] == NULL)
        abort();
    for (int k = 0; k < t->partition_cnt; k++)
        if (t->partitions[k].id >= 0 && t->partitions[k].id < t->partition_cnt)
            l->has_leader[i][t->partitions[k].id] = t->partitions[k].leader >= 0;
}

/* One topic's partitions; leaves counts[i] and codes[i] as the contract says. False: no broker answered. Runs on the
 * worker. */
static bool look_up_one(struct kafka_lookup *l, size_t i) {
    rd_kafka_t *rk = kafka_client(l->kafka);
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, l->names[i], NULL);
    rd_kafka_resp_err_t err = rkt ? rd_kafka_metadata(rk, 0, rkt, &metadata, l->timeout_ms) : rd_kafka_last_error();
    if (metadata == NULL) {
        l->codes[i] = l->unreached_code = err;
        l->counts[i] = -1;
    } else {
        l->reached = true;
        const struct rd_kafka_metadata_topic *t = metadata->topic_cnt > 0 ? &metadata->topics[0] : NULL;
        l->codes[i] = t ? t->err : RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
        l->counts[i] = t ? t->partition_cnt : 0;
        if (l->counts[i] > 0)
            note_leaders(l, i, t);
        /* A topic that is being created has no leader yet, or no partitions: that is no answer. */
        if (l->counts[i] == 0 && (l->codes[i] == 0 || l->codes[i] == RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE))
            l->counts[i] = -1;
    }
    bool is_answered = metadata != NULL;
    if (is_answered)
        rd_kafka_metadata_destroy(metadata);
    if (rkt != NULL)
        rd_kafka_topic_destroy(rkt);
    return is_answered;
}

#define LIMITS_TIMEOUT_MS 1000 /* they are advice: nobody waits long for them */

static void ask_limits(struct kafka_lookup *l) {
    const char *names[l->count + 1];
    struct kafka_limits limits[l->count + 1];
    size_t there = 0;
    for (size_t i = 0; i < l->count; i++)
        if (l->counts[i] > 0)
            names[there++] = l->names[i];
    kafka_limits_ask(l->kafka, names, there, LIMITS_TIMEOUT_MS, limits);
    for (size_t i = l->count; i-- > 0;)
        if (l->counts[i] > 0)
            l->limits[i] = limits[--there];
}

static void look_up(struct worker_job *job) {
    struct kafka_lookup *l = (struct kafka_lookup *)job;
    bool is_answered = true;
    for (size_t i = 0; i < l->count; i++)
        if (is_answered) {
            is_answered = look_up_one(l, i);
        } else { /* nobody answered the last: do not wait for each */
            l->counts[i] = -1;
            l->codes[i] = l->unreached_code;
        }
    if (l->reached)
        ask_limits(l);
    if (l->count == 0) {
        const struct rd_kafka_metadata *metadata = NULL;
        l->unreached_code = rd_kafka_metadata(kafka_client(l->kafka), 0, NULL, &metadata, l->timeout_ms);
        l->reached = l->unreached_code == RD_KAFKA_RESP_ERR_NO_ERROR;
        if (metadata != NULL)
            rd_kafka_metadata_destroy(metadata);
    }
}

static void looked_up(struct worker_job *job) {
    struct kafka_lookup *l = (struct kafka_lookup *)job;
    if (l->reached)
        kafka_note_reached(l->kafka);
    l->done(l);
}

struct kafka_lookup *kafka_lookup_new(struct kafka *k, size_t count, int timeout_ms,
                                      void (*done)(struct kafka_lookup *), void *context) {
    struct kafka_lookup *l = calloc(1, sizeof *l);
    if (l == NULL)
        abort();
    l->kafka = k;
    l->count = count;
    l->timeout_ms = timeout_ms;
    l->done = done;
    l->context = context;
    l->names = calloc(count + 1, sizeof *l->names);
    l->counts = calloc(count + 1, sizeof *l->counts);
    l->codes = calloc(count + 1, sizeof *l->codes);
    l->limits = calloc(count + 1, sizeof *l->limits);
    l->has_leader = calloc(count + 1, sizeof *l->has_leader);
    if (l->names == NULL || l->counts == NULL || l->codes == NULL || l->limits == NULL || l->has_leader == NULL)
        abort();
    return l;
}

void kafka_lookup_submit(struct kafka_lookup *l, struct worker *worker) {
    l->job = (struct worker_job){.run = look_up, .done = looked_up};
    worker_submit(worker, &l->job);
}

void kafka_lookup_free(struct kafka_lookup *l) {
    if (l == NULL)
        return;
    for (size_t i = 0; i < l->count; i++) {
        free(l->names[i]);
        free(l->has_leader[i]);
    }
    free(l->has_leader);
    free(l->names);
    free(l->counts);
    free(l->codes);
    free(l->limits);
    free(l);
}
