/* kafka.c: owns the librdkafka producer: its settings, its event queue, and what each delivery report means. */
#include "denpyo/kafka.h"

#include <librdkafka/rdkafka.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "denpyo/log.h"
#include "denpyo/nearest.h"

struct kafka {
    struct loop *loop;
    struct loop_io io;
    struct worker_job closing; /* the job that destroys it */
    void (*closed)(void *context);
    void *closed_context;
    rd_kafka_t *rk;
    rd_kafka_queue_t *events;
    int event_fd;
    kafka_report_fn report;
    void *context;
    atomic_bool has_socket; /* it connects, or is connected */
    int64_t message_max_bytes, group_max_bytes, group_max_messages;
    bool is_compressing;
    rd_kafka_topic_partition_list_t *paused;
    char *cluster_id;
    bool down;
    int fatal;
    char reason[512];
};

struct kafka_topic {
    rd_kafka_topic_t *rkt;
};

/* The settings that work (measured; see the README), which the configuration may change. */
static const struct kafka_property defaults[] = {
    {"client.id", "denpyo"},
    {"compression.type", "lz4"},
    {"linger.ms", "0"},
    {"socket.nagle.disable", "true"},
    {"socket.keepalive.enable", "true"},
    {"reconnect.backoff.ms", "50"},
    {"reconnect.backoff.max.ms", "1000"},
    {"topic.metadata.propagation.max.ms", "2000"},
    {"allow.auto.create.topics", "false"},
    {"message.max.bytes", "1048588"}, /* what a broker accepts by default */
    {"queue.buffering.max.messages", "1000000"},
};

/* The settings that a promise rests on; the configuration may repeat them but not change them. */
static const struct {
    const char *name, *alias, *value, *also, *why;
} promises[] = {
    {"enable.idempotence", "", "true", "true", "without it a retry by the client can double or reorder messages"},
    {"acks", "request.required.acks", "all", "-1", "with less an acknowledged message can be lost"},
    {"message.timeout.ms", "delivery.timeout.ms", "0", "0",
     "a local time-out lets later messages overtake and calls an outage a failure"},
    {"message.send.max.retries", "retries", "2147483647", "2147483647", "giving up early calls an outage a failure"},
    {"delivery.report.only.error", "", "false", "false", "a receipt is written only after an acknowledgment"},
};
#define PROMISES (sizeof promises / sizeof *promises)

/* The property that a name which librdkafka does not know was probably meant for. */
static bool suggest(rd_kafka_conf_t *conf, const char *name, struct fault *f) {
    size_t count, topic_count;
    rd_kafka_topic_conf_t *topic = rd_kafka_topic_conf_new();
    const char **all = rd_kafka_conf_dump(conf, &count);
    const char **topics = rd_kafka_topic_conf_dump(topic, &topic_count);
    /* A dump alternates names and values, and knows no aliases: those that we use ourselves come before. */
    const char *known[sizeof defaults / sizeof *defaults + PROMISES + count / 2 + topic_count / 2];
    size_t used = 0;
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        known[used++] = defaults[i].name;
    for (size_t i = 0; i < PROMISES; i++)
        known[used++] = promises[i].name;
    for (size_t i = 0; i < count; i += 2)
        known[used++] = all[i];
    for (size_t i = 0; i < topic_count; i += 2)
        known[used++] = topics[i];
    const char *near = nearest_word(name, known, used);
    if (near != NULL)
        fault_set(f, FAULT_USAGE, "kafka", "kafka.%s: librdkafka has no such property; did you mean \"%s\"?", name,
                  near);
    else
        fault_set(f, FAULT_USAGE, "kafka",
                  "kafka.%s: librdkafka %s has no such property; its CONFIGURATION.md lists them", name,
                  rd_kafka_version_str());
    rd_kafka_conf_dump_free(all, count);
    rd_kafka_conf_dump_free(topics, topic_count);
    rd_kafka_topic_conf_destroy(topic);
    return false;
}

static bool set(rd_kafka_conf_t *conf, const char *name, const char *value, struct fault *f) {
    char why[400];
    rd_kafka_conf_res_t result = rd_kafka_conf_set(conf, name, value, why, sizeof why);
    if (result == RD_KAFKA_CONF_OK)
        return true;
    if (result == RD_KAFKA_CONF_UNKNOWN)
        return suggest(conf, name, f);
    return fault_set(f, FAULT_USAGE, "kafka", "kafka.%s: %s", name, why);
}

static int64_t number_of(const rd_kafka_conf_t *conf, const char *name) {
    char text[32];
    size_t size = sizeof text;
    if (rd_kafka_conf_get(conf, name, text, &size) != RD_KAFKA_CONF_OK)
        abort();
    return strtoll(text, NULL, 10);
}

/* In a transaction a time-out is no failure of a message: the transaction is aborted and all of it sent again. It comes
 * before the broker's own, which would end the producer. */
static bool set_transactional(rd_kafka_conf_t *conf, const char *id, struct fault *f) {
    char timeout[32];
    snprintf(timeout, sizeof timeout, "%lld", (long long)number_of(conf, "transaction.timeout.ms") * 5 / 6);
    return set(conf, "transactional.id", id, f) && set(conf, "message.timeout.ms", timeout, f);
}

static bool set_all(rd_kafka_conf_t *conf, const struct kafka_options *options, struct fault *f) {
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        if (!set(conf, defaults[i].name, defaults[i].value, f))
            return false;
    if (!set(conf, "bootstrap.servers", options->brokers, f) || !set(conf, "log.queue", "true", f))
        return false;
    for (size_t i = 0; i < options->property_count; i++) {
        const struct kafka_property *p = &options->properties[i];
        if (strcmp(p->name, "transactional.id") == 0)
            return fault_set(f, FAULT_USAGE, "kafka", "kafka.transactional.id: the relay sets it itself; remove it");
        for (size_t k = 0; k < PROMISES; k++) {
            bool named = strcmp(p->name, promises[k].name) == 0 || strcmp(p->name, promises[k].alias) == 0;
            if (named && strcmp(p->value, promises[k].value) != 0 && strcmp(p->value, promises[k].also) != 0)
                return fault_set(f, FAULT_USAGE, "kafka", "kafka.%s=%s is refused: %s; remove it", p->name, p->value,
                                 promises[k].why);
        }
        if (!set(conf, p->name, p->value, f))
            return false;
    }
    for (size_t k = 0; k < PROMISES; k++)
        if (!set(conf, promises[k].name, promises[k].value, f))
            return false;
    return options->transactional_id == NULL || set_transactional(conf, options->transactional_id, f);
}

bool kafka_check(const struct kafka_options *options, struct fault *f) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    bool ok = set_all(conf, options, f);
    rd_kafka_conf_destroy(conf);
    return ok;
}

static bool is_set_to(const rd_kafka_conf_t *conf, const char *name, const char *value) {
    char text[32];
    size_t size = sizeof text;
    return rd_kafka_conf_get(conf, name, text, &size) == RD_KAFKA_CONF_OK && strcmp(text, value) == 0;
}

static void events_ready(void *context, uint32_t events) {
    struct kafka *k = context;
    (void)events;
    eventfd_t count;
    eventfd_read(k->event_fd, &count);
    kafka_poll(k);
}

/* What librdkafka does by default, and a note that it did. */
static int open_socket(int domain, int type, int protocol, void *opaque) {
    struct kafka *k = opaque;
    atomic_store(&k->has_socket, true);
    return socket(domain, type | SOCK_CLOEXEC, protocol);
}

/* A new client connects at once only if it knows no broker yet when its bootstrap servers are added, and a
 * transactional one may: its own thread adds its coordinator meanwhile (librdkafka 2.0.2, rd_kafka_brokers_add0). Then
 * nothing connects for a second. A question that is given up at once makes it connect. It must not be put: it would be
 * one for all of the cluster's topics, and librdkafka would go on to ask for them; so only who has no socket asks. */
static void connect_now(struct kafka *k) {
    const struct rd_kafka_metadata *answer;
    if (!atomic_load(&k->has_socket) && rd_kafka_metadata(k->rk, 0, NULL, &answer, 0) == RD_KAFKA_RESP_ERR_NO_ERROR)
        rd_kafka_metadata_destroy(answer);
}

struct kafka *kafka_open(struct loop *loop, const struct kafka_options *options, struct fault *f) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR | RD_KAFKA_EVENT_LOG);
    if (!set_all(conf, options, f)) {
        rd_kafka_conf_destroy(conf);
        return NULL;
    }
    struct kafka *k = calloc(1, sizeof *k);
    if (k == NULL)
        abort();
    k->message_max_bytes = number_of(conf, "message.max.bytes");
    k->is_compressing = !is_set_to(conf, "compression.type", "none");
    k->group_max_bytes = number_of(conf, "batch.size");
    k->group_max_messages = number_of(conf, "batch.num.messages");
    rd_kafka_conf_set_opaque(conf, k);
    rd_kafka_conf_set_socket_cb(conf, open_socket);
    char why[400];
    k->rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    if (k->rk == NULL) {
        rd_kafka_conf_destroy(conf);
        free(k);
        fault_set(f, FAULT_USAGE, "kafka", "the Kafka client cannot start: %s", why);
        return NULL;
    }
    if (options->transactional_id != NULL)
        connect_now(k);
    k->loop = loop;
    k->report = options->report;
    k->context = options->context;
    k->events = rd_kafka_queue_get_main(k->rk);
    k->paused = rd_kafka_topic_partition_list_new(64);
    rd_kafka_set_log_queue(k->rk, k->events);
    k->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (k->event_fd < 0)
        abort();
    static const uint64_t one = 1;
    rd_kafka_queue_io_event_enable(k->events, k->event_fd, &one, sizeof one);
    eventfd_write(k->event_fd, one); /* it tells of a queue that fills, and events may be in this one already */
    loop_watch(loop, &k->io, k->event_fd, EPOLLIN, events_ready, k);
    return k;
}

static void close_run(struct worker_job *job) {
    struct kafka *k = (struct kafka *)((char *)job - offsetof(struct kafka, closing));
    /* Waits until librdkafka's threads have forgotten all requests: to destroy a fenced producer frees its error's text
     * (2.0.2, rd_kafka_txns_term), and the answer to a request that is still there would free it once more. */
    rd_kafka_purge(k->rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    rd_kafka_event_t *event;
    while ((event = rd_kafka_queue_poll(k->events, 0)) != NULL)
        rd_kafka_event_destroy(event);
    /* Lists given to pause and resume hold references to partitions: destroy would hang on them. */
    rd_kafka_topic_partition_list_destroy(k->paused);
    rd_kafka_queue_destroy(k->events);
    rd_kafka_destroy_flags(k->rk, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
}

static void close_done(struct worker_job *job) {
    struct kafka *k = (struct kafka *)((char *)job - offsetof(struct kafka, closing));
    close(k->event_fd);
    if (k->closed != NULL)
        k->closed(k->closed_context);
    free(k->cluster_id);
    free(k);
}

void kafka_close(struct kafka *k, struct worker *worker, void (*closed)(void *context), void *context) {
    k->closed = closed;
    k->closed_context = context;
    loop_forget(k->loop, &k->io);
    rd_kafka_queue_io_event_enable(k->events, -1, NULL, 0);
    k->closing = (struct worker_job){.run = close_run, .done = close_done};
    worker_submit(worker, &k->closing);
}

int64_t kafka_message_max_bytes(const struct kafka *k) {
    return k->message_max_bytes;
}

int64_t kafka_group_max_bytes(const struct kafka *k) {
    return k->group_max_bytes < k->message_max_bytes ? k->group_max_bytes : k->message_max_bytes;
}

int64_t kafka_group_max_messages(const struct kafka *k) {
    return k->group_max_messages;
}

bool kafka_is_compressing(const struct kafka *k) {
    return k->is_compressing;
}

struct kafka_topic *kafka_topic_open(struct kafka *k, const char *name) {
    struct kafka_topic *topic = calloc(1, sizeof *topic);
    if (topic == NULL)
        abort();
    topic->rkt = rd_kafka_topic_new(k->rk, name, NULL);
    if (topic->rkt == NULL)
        abort(); /* only for an empty name, which the schema refuses */
    return topic;
}

void kafka_topic_close(struct kafka_topic *topic) {
    if (topic == NULL)
        return;
    rd_kafka_topic_destroy(topic->rkt);
    free(topic);
}

/* What is behind "Local: Fatal error", which a call or a report may say before the event does. */
static void note_fatal(struct kafka *k) {
    k->fatal = rd_kafka_fatal_error(k->rk, k->reason, sizeof k->reason);
}

/* librdkafka's macros for rd_kafka_producev are statement expressions, which clang calls an extension. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wgnu-statement-expression"
#endif
enum kafka_produced kafka_produce(struct kafka *k, const struct kafka_message *m, int *code) {
    rd_kafka_headers_t *headers = NULL;
    rd_kafka_resp_err_t err;
    if (m->header_count == 0) {
        err = rd_kafka_producev(k->rk, RD_KAFKA_V_RKT(m->topic->rkt), RD_KAFKA_V_PARTITION(m->partition),
                                RD_KAFKA_V_KEY(m->key, m->key_size),
                                RD_KAFKA_V_VALUE((void *)(uintptr_t)m->value, m->value_size), RD_KAFKA_V_MSGFLAGS(0),
                                RD_KAFKA_V_HEADER("id", m->id, 36), RD_KAFKA_V_OPAQUE(m->opaque), RD_KAFKA_V_END);
    } else {
        headers = rd_kafka_headers_new(m->header_count + 1);
        rd_kafka_header_add(headers, "id", 2, m->id, 36);
        for (size_t i = 0; i < m->header_count; i++) {
            const struct kafka_header *h = &m->headers[i];
            rd_kafka_header_add(headers, h->name, (ssize_t)h->name_size, h->value, (ssize_t)h->value_size);
        }
        err = rd_kafka_producev(k->rk, RD_KAFKA_V_RKT(m->topic->rkt), RD_KAFKA_V_PARTITION(m->partition),
                                RD_KAFKA_V_KEY(m->key, m->key_size),
                                RD_KAFKA_V_VALUE((void *)(uintptr_t)m->value, m->value_size), RD_KAFKA_V_MSGFLAGS(0),
                                RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_OPAQUE(m->opaque), RD_KAFKA_V_END);
        if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
            rd_kafka_headers_destroy(headers);
    }
    *code = err;
    if (err == RD_KAFKA_RESP_ERR__FATAL)
        note_fatal(k);
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
        return KAFKA_QUEUED;
    return err == RD_KAFKA_RESP_ERR__QUEUE_FULL ? KAFKA_FULL : KAFKA_REFUSED;
}

void kafka_pause_add(struct kafka *k, const struct kafka_topic *topic, int32_t partition) {
    rd_kafka_topic_partition_list_add(k->paused, rd_kafka_topic_name(topic->rkt), partition)->opaque = topic->rkt;
}

void kafka_pause(struct kafka *k) {
    if (k->paused->cnt > 0)
        rd_kafka_pause_partitions(k->rk, k->paused);
}

/* Each pause and each resume leaves an operation in the partition's fetch queue, in front of which the next is put by
 * walking all that are there (librdkafka 2.0.2: rd_kafka_toppar_op_version_bump). A consumer takes them out when it
 * polls; nobody reads this queue of a producer, unless it is asked for messages, of which there are none. */
static void take_barriers(rd_kafka_topic_t *rkt, int32_t partition) {
    rd_kafka_message_t *message;
    if (rd_kafka_consume_batch(rkt, partition, 0, &message, 1) > 0)
        rd_kafka_message_destroy(message);
}

void kafka_release(struct kafka *k) {
    if (k->paused->cnt == 0)
        return;
    rd_kafka_resume_partitions(k->rk, k->paused);
    rd_kafka_flush(k->rk, 0); /* the wake-up: resume alone does not wake the broker threads */
    for (int i = 0; i < k->paused->cnt; i++)
        take_barriers(k->paused->elems[i].opaque, k->paused->elems[i].partition);
    rd_kafka_topic_partition_list_destroy(k->paused);
    k->paused = rd_kafka_topic_partition_list_new(64);
}

#define REPORTS_AT_ONCE 32

/* What reports tell of has left the processor's cache since it was sent: it is asked for before it is needed. */
static void ask_memory(const rd_kafka_message_t **messages, size_t count) {
    for (size_t i = 0; i < count; i++)
        for (size_t line = 0; line < 2; line++)
            __builtin_prefetch((const char *)messages[i]->_private + line * 64, 1);
}

static void take_report(struct kafka *k, const rd_kafka_message_t *m) {
    struct kafka_report report = {
        .opaque = m->_private, .code = m->err, .partition = m->partition, .offset = m->offset};
    if (m->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        report.delivery = KAFKA_ACKNOWLEDGED;
        k->down = false;
    } else if (rd_kafka_message_status(m) == RD_KAFKA_MSG_STATUS_NOT_PERSISTED) {
        report.delivery = KAFKA_NOT_PERSISTED;
    } else {
        report.delivery = KAFKA_MAYBE_PERSISTED;
    }
    if (m->err == RD_KAFKA_RESP_ERR__FATAL)
        note_fatal(k);
    k->report(k->context, &report);
}

static void take_reports(struct kafka *k, rd_kafka_event_t *event) {
    const rd_kafka_message_t *messages[REPORTS_AT_ONCE];
    size_t count;
    while ((count = rd_kafka_event_message_array(event, messages, REPORTS_AT_ONCE)) > 0) {
        ask_memory(messages, count);
        for (size_t i = 0; i < count; i++)
            take_report(k, messages[i]);
    }
}

static void take_error(struct kafka *k, rd_kafka_event_t *event) {
    rd_kafka_resp_err_t err = rd_kafka_event_error(event);
    if (err == RD_KAFKA_RESP_ERR__FATAL) {
        note_fatal(k);
        return;
    }
    if (err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
        k->down = true; /* the reason came just before */
        return;
    }
    snprintf(k->reason, sizeof k->reason, "%s", rd_kafka_event_error_string(event));
}

static void take_log(rd_kafka_event_t *event) {
    const char *facility, *text;
    int level;
    if (rd_kafka_event_log(event, &facility, &text, &level) == 0)
        log_event(LOG_DEBUG, "librdkafka", log_str("facility", facility), log_str("text", text), LOG_END);
}

void kafka_poll(struct kafka *k) {
    rd_kafka_event_t *event;
    while ((event = rd_kafka_queue_poll(k->events, 0)) != NULL) {
        rd_kafka_event_type_t type = rd_kafka_event_type(event);
        if (type == RD_KAFKA_EVENT_DR)
            take_reports(k, event);
        else if (type == RD_KAFKA_EVENT_ERROR)
            take_error(k, event);
        else if (type == RD_KAFKA_EVENT_LOG)
            take_log(event);
        rd_kafka_event_destroy(event);
    }
}

bool kafka_is_down(const struct kafka *k, const char **reason) {
    *reason = k->reason;
    return k->down;
}

int kafka_fatal(struct kafka *k, const char **reason) {
    if (k->fatal == 0)
        note_fatal(k); /* a call of a transaction's may have failed for it before its event came */
    *reason = k->reason;
    return k->fatal;
}

struct rd_kafka_s *kafka_client(struct kafka *k) {
    return k->rk;
}

void kafka_note_reached(struct kafka *k) {
    k->down = false;
}

const char *kafka_cluster_id(struct kafka *k) {
    if (k->cluster_id == NULL) {
        char *id = rd_kafka_clusterid(k->rk, 0);
        if (id != NULL) {
            k->cluster_id = strdup(id);
            rd_kafka_mem_free(k->rk, id);
        }
    }
    return k->cluster_id;
}

const char *kafka_library_version(void) {
    return rd_kafka_version_str();
}
