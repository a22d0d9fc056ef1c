/* kafka_admin.c: a short-lived librdkafka handle for one metadata request. */
#include "denpyo/kafka_admin.h"

#include <librdkafka/rdkafka.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The last thing that librdkafka reported, since a time-out alone does not say why. */
struct reason {
    char text[300];
};

static void on_error(rd_kafka_t *handle, int code, const char *text, void *opaque) {
    struct reason *reason = opaque;
    (void)handle;
    if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
        return;                                   /* it only counts the others */
    const char *noise = strstr(text, " (after "); /* "(after 0ms in state CONNECT, 1 identical error(s) suppressed)" */
    snprintf(reason->text, sizeof reason->text, "%.*s", (int)(noise ? noise - text : (ptrdiff_t)strlen(text)), text);
}

static void on_log(const rd_kafka_t *handle, int level, const char *facility, const char *text) {
    (void)handle, (void)level, (void)facility, (void)text; /* the same is told to on_error */
}

static bool set(rd_kafka_conf_t *conf, const char *name, const char *value, struct fault *f) {
    char text[400];
    if (rd_kafka_conf_set(conf, name, value, text, sizeof text) == RD_KAFKA_CONF_OK)
        return true;
    return fault_set(f, FAULT_USAGE, "KAFKA_PROPERTY", "librdkafka refuses kafka.%s: %s", name, text);
}

static rd_kafka_t *open_handle(const char *brokers, const struct kafka_property *properties, size_t count,
                               struct reason *reason, struct fault *f) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set_opaque(conf, reason);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_log_cb(conf, on_log);
    bool ok = set(conf, "bootstrap.servers", brokers, f) && set(conf, "allow.auto.create.topics", "false", f);
    for (size_t i = 0; i < count && ok; i++)
        ok = set(conf, properties[i].name, properties[i].value, f);
    char text[400] = "";
    rd_kafka_t *handle = ok ? rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text) : NULL;
    if (handle == NULL)
        rd_kafka_conf_destroy(conf);
    if (ok && handle == NULL)
        fault_set(f, FAULT_USAGE, "KAFKA_PROPERTY", "librdkafka refuses the kafka properties: %s", text);
    return handle;
}

static void fill(struct kafka_admin_topic *topic, const rd_kafka_metadata_t *metadata) {
    topic->partitions = 0;
    topic->error[0] = 0;
    for (int i = 0; i < metadata->topic_cnt; i++) {
        const rd_kafka_metadata_topic_t *found = &metadata->topics[i];
        if (strcmp(found->topic, topic->name) != 0)
            continue;
        topic->partitions = found->partition_cnt;
        if (found->err)
            snprintf(topic->error, sizeof topic->error, "%s", rd_kafka_err2str(found->err));
        return;
    }
}

bool kafka_admin_look(const char *brokers, const struct kafka_property *properties, size_t property_count,
                      int timeout_ms, struct kafka_admin_topic *topics, size_t topic_count,
                      struct kafka_admin_cluster *cluster, struct fault *f) {
    struct reason reason = {""};
    rd_kafka_t *handle = open_handle(brokers, properties, property_count, &reason, f);
    if (handle == NULL)
        return false;
    const rd_kafka_metadata_t *metadata = NULL;
    rd_kafka_resp_err_t code = rd_kafka_metadata(handle, 1, NULL, &metadata, timeout_ms);
    rd_kafka_poll(handle, 0); /* hands over what on_error has to hear */
    if (code) {
        fault_set(f, FAULT_RETRY, "BROKER", "no Kafka broker at %s answers: %s", brokers,
                  *reason.text ? reason.text : rd_kafka_err2str(code));
    } else {
        for (size_t i = 0; i < topic_count; i++)
            fill(&topics[i], metadata);
        char *id = rd_kafka_clusterid(handle, 0);
        *cluster = (struct kafka_admin_cluster){.brokers = metadata->broker_cnt};
        snprintf(cluster->id, sizeof cluster->id, "%s", id ? id : "");
        rd_kafka_mem_free(handle, id);
        rd_kafka_metadata_destroy(metadata);
    }
    rd_kafka_destroy(handle);
    return code == RD_KAFKA_RESP_ERR_NO_ERROR;
}
