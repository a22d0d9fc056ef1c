/* die_in_commit.c: preloaded into a relay, kills it at one step of a transaction's commit: DIE_AT, in the DIE_IN-th. */
#include <dlfcn.h>
#include <librdkafka/rdkafka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int commits;

static void die_at(const char *step) {
    if (strcmp(getenv("DIE_AT"), step) == 0 && commits + 1 >= atoi(getenv("DIE_IN")))
        kill(getpid(), SIGKILL);
}

rd_kafka_error_t *rd_kafka_send_offsets_to_transaction(rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *offsets,
                                                       const rd_kafka_consumer_group_metadata_t *group,
                                                       int timeout_ms) {
    rd_kafka_error_t *(*original)(rd_kafka_t *, const rd_kafka_topic_partition_list_t *,
                                  const rd_kafka_consumer_group_metadata_t *, int) =
        (rd_kafka_error_t * (*)(rd_kafka_t *, const rd_kafka_topic_partition_list_t *,
                                const rd_kafka_consumer_group_metadata_t *, int)) dlsym(RTLD_NEXT, __func__);
    die_at("before_mark");
    rd_kafka_error_t *error = original(rk, offsets, group, timeout_ms);
    die_at("after_mark");
    return error;
}

rd_kafka_error_t *rd_kafka_commit_transaction(rd_kafka_t *rk, int timeout_ms) {
    rd_kafka_error_t *(*original)(rd_kafka_t *, int) =
        (rd_kafka_error_t * (*)(rd_kafka_t *, int)) dlsym(RTLD_NEXT, __func__);
    if (strcmp(getenv("DIE_AT"), "in_commit") == 0 && commits + 1 >= atoi(getenv("DIE_IN"))) {
        original(rk, atoi(getenv("DIE_AFTER_MS"))); /* the request is on its way, or at the broker, or answered */
        kill(getpid(), SIGKILL);
    }
    rd_kafka_error_t *error = original(rk, timeout_ms);
    die_at("after_commit"); /* before anybody hears of it: nothing is settled */
    commits += error == NULL;
    return error;
}
