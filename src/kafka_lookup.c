/* kafka_lookup.c: asks the broker on the worker how many partitions topics have. */
#include "denpyo/kafka_lookup.h"

#include <librdkafka/rdkafka.h>
#include <stdlib.h>
#include <string.h>

static void note_leaders(struct kafka_lookup *l, size_t i, const struct rd_kafka_metadata_topic *t) {
    l->has_leader[i] = calloc((size_t)t->partition_cnt, sizeof **l->has_leader);
    if (l->has_leader[i] == NULL)
        abort();
    for (int k = 0; k < t->partition_cnt; k++)
        if (t->partitions[k].id >= 0 && t->partitions[k].id < t->partition_cnt)
            l->has_leader[i][t->partitions[k].id] = t->partitions[k].leader >= 0;
}

/* What the broker said of one topic; NULL = nothing, which means that there is none. */
static void take(struct kafka_lookup *l, size_t i, const struct rd_kafka_metadata_topic *t) {
    l->codes[i] = t ? t->err : RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    l->counts[i] = t ? t->partition_cnt : 0;
    if (l->counts[i] > 0)
        note_leaders(l, i, t);
    /* A topic that is being created has no leader yet, or no partitions: that is no answer. */
    if (l->counts[i] == 0 && (l->codes[i] == 0 || l->codes[i] == RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE))
        l->counts[i] = -1;
}

static rd_kafka_resp_err_t ask(struct kafka_lookup *l, rd_kafka_topic_t *only,
                               const struct rd_kafka_metadata **metadata) {
    rd_kafka_resp_err_t err = rd_kafka_metadata(kafka_client(l->kafka), 0, only, metadata, l->timeout_ms);
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
        l->reached = true;
    else
        l->unreached_code = err;
    return err;
}

/* One topic in a request of its own. False: no broker answered. */
static bool look_up_one(struct kafka_lookup *l, size_t i) {
    const struct rd_kafka_metadata *metadata = NULL;
    if (ask(l, l->topics[i], &metadata) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return false;
    take(l, i, metadata->topic_cnt > 0 ? &metadata->topics[0] : NULL);
    rd_kafka_metadata_destroy(metadata);
    return true;
}

static int compare_names(const void *a, const void *b) {
    const struct rd_kafka_metadata_topic *one = a, *other = b;
    return strcmp(one->topic, other->topic);
}

static void open_topic(struct kafka_lookup *l, size_t i) {
    if (l->topics[i] == NULL)
        l->topics[i] = rd_kafka_topic_new(kafka_client(l->kafka), l->names[i], NULL);
    if (l->topics[i] == NULL)
        abort(); /* only for an empty name, which the schema refuses */
}

/* All topics in one request. is_taken[]: those that an answer told of. False: no broker answered. */
static bool look_up_all(struct kafka_lookup *l, bool *is_taken) {
    const struct rd_kafka_metadata *metadata = NULL;
    if (ask(l, NULL, &metadata) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return false;
    size_t count = (size_t)metadata->topic_cnt;
    qsort(metadata->topics, count, sizeof *metadata->topics, compare_names);
    for (size_t i = 0; i < l->count; i++) {
        const struct rd_kafka_metadata_topic wanted = {.topic = l->names[i]};
        const struct rd_kafka_metadata_topic *found =
            bsearch(&wanted, metadata->topics, count, sizeof wanted, compare_names);
        if (found == NULL || is_taken[i])
            continue;
        take(l, i, found);
        is_taken[i] = true;
    }
    rd_kafka_metadata_destroy(metadata);
    return true;
}

/* Opening a topic makes librdkafka ask for it, in a request of its own, unless it knows it. It learns of many at once
 * from a question about their offsets, which is given up before it is put: so a request that follows waits for that
 * to be answered. False: no broker answered. */
static bool announce(struct kafka_lookup *l, bool *is_taken) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)l->count);
    size_t last = l->count;
    for (size_t i = 0; i < l->count; i++)
        if (l->is_new[i])
            rd_kafka_topic_partition_list_add(list, l->names[last = i], 0)->offset = RD_KAFKA_OFFSET_END;
    if (last < l->count)
        rd_kafka_offsets_for_times(kafka_client(l->kafka), list, 0);
    rd_kafka_topic_partition_list_destroy(list);
    if (last == l->count)
        return true;
    open_topic(l, last);
    return is_taken[last] = look_up_one(l, last);
}

/* Fills counts[] and codes[] as the contract says. */
static void look_up_topics(struct kafka_lookup *l) {
    bool is_answered = true, is_taken[l->count + 1];
    memset(is_taken, 0, sizeof is_taken);
    if (l->is_together && (is_answered = announce(l, is_taken))) {
        for (size_t i = 0; i < l->count; i++)
            open_topic(l, i);
        is_answered = look_up_all(l, is_taken);
    }
    for (size_t i = 0; i < l->count; i++) {
        if (is_taken[i])
            continue;
        open_topic(l, i);
        is_answered = is_answered && look_up_one(l, i);
        if (!is_answered) { /* nobody answered the last: do not wait for each */
            l->counts[i] = -1;
            l->codes[i] = l->unreached_code;
        }
    }
    for (size_t i = 0; i < l->count; i++)
        if (l->topics[i] != NULL)
            rd_kafka_topic_destroy(l->topics[i]);
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

/* A metadata request for no topic at all would be one for all of the cluster's, and librdkafka would go on to ask for
 * all of them; it asks for the brokers by itself as soon as it is connected. */
static void look_up_brokers(struct kafka_lookup *l) {
    char *id = rd_kafka_clusterid(kafka_client(l->kafka), l->timeout_ms);
    l->reached = id != NULL;
    if (id == NULL)
        l->unreached_code = RD_KAFKA_RESP_ERR__TRANSPORT;
    rd_kafka_mem_free(kafka_client(l->kafka), id);
}

static void look_up(struct worker_job *job) {
    struct kafka_lookup *l = (struct kafka_lookup *)job;
    if (l->count == 0)
        look_up_brokers(l);
    else
        look_up_topics(l);
    if (l->count > 0 && l->reached)
        ask_limits(l);
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
    l->topics = calloc(count + 1, sizeof(rd_kafka_topic_t *));
    l->is_new = calloc(count + 1, sizeof *l->is_new);
    l->codes = calloc(count + 1, sizeof *l->codes);
    l->limits = calloc(count + 1, sizeof *l->limits);
    l->has_leader = calloc(count + 1, sizeof *l->has_leader);
    if (l->names == NULL || l->topics == NULL || l->counts == NULL || l->codes == NULL || l->limits == NULL ||
        l->has_leader == NULL || l->is_new == NULL)
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
    free(l->topics);
    free(l->is_new);
    free(l->counts);
    free(l->codes);
    free(l->limits);
    free(l);
}
