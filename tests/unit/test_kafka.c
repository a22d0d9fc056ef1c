/* test_kafka.c: what the producer leaves behind in librdkafka, with librdkafka's own broker. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <malloc.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "denpyo/kafka.h"
#include "denpyo/log.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_OWN_MALLOC 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define HAS_OWN_MALLOC 1
#endif

struct client {
    struct loop *loop;
    struct worker *worker;
    struct kafka *kafka;
    struct kafka_topic *topic;
    int acknowledged, refused;
    bool may_be_refused, is_closed;
};

static void take_report(void *context, const struct kafka_report *report) {
    struct client *c = context;
    cr_assert(c->may_be_refused || report->delivery == KAFKA_ACKNOWLEDGED);
    c->acknowledged += report->delivery == KAFKA_ACKNOWLEDGED;
    c->refused += report->delivery != KAFKA_ACKNOWLEDGED;
}

static void note_closed(void *context) {
    ((struct client *)context)->is_closed = true;
}

static void open_producer(struct client *c, const struct kafka_options *options) {
    struct fault f = {0};
    struct kafka_options mine = *options;
    mine.report = take_report;
    mine.context = c;
    *c = (struct client){.loop = loop_new()};
    c->worker = worker_new(c->loop);
    c->kafka = kafka_open(c->loop, &mine, &f);
    cr_assert_not_null(c->kafka, "%s", f.text);
}

static void open_client(struct client *c) {
    static const struct kafka_property properties[] = {{"test.mock.num.brokers", "1"}};
    log_setup(LOG_TEXT, LOG_ERROR);
    open_producer(c, &(struct kafka_options){.brokers = "127.0.0.1:1", .properties = properties, .property_count = 1});
    c->topic = kafka_topic_open(c->kafka, "t");
}

static void close_client(struct client *c) {
    kafka_topic_close(c->topic);
    kafka_close(c->kafka, c->worker, note_closed, c);
    while (!c->is_closed)
        loop_turn(c->loop, INT64_MAX);
    worker_free(c->worker);
    loop_free(c->loop);
}

static void send_one(struct client *c) {
    struct kafka_message m = {
        .topic = c->topic, .value = "v", .value_size = 1, .id = "00000000-0000-0000-0000-000000000000"};
    int code, before = c->acknowledged;
    cr_assert_eq(kafka_produce(c->kafka, &m, &code), KAFKA_QUEUED);
    kafka_release(c->kafka);
    while (c->acknowledged == before)
        loop_turn(c->loop, INT64_MAX);
}

static void hold_back(struct client *c) {
    kafka_pause_add(c->kafka, c->topic, 0);
    kafka_pause(c->kafka);
    kafka_release(c->kafka);
}

#define PAUSES 10000
#define PATIENCE_US 10000000

Test(kafka, holding_a_partition_back_leaves_nothing_behind, .timeout = 120) {
#ifdef HAS_OWN_MALLOC
    cr_skip_test("what is allocated cannot be asked for");
#endif
    struct client c;
    open_client(&c);
    send_one(&c); /* the partition is known from here on */
    size_t before = mallinfo2().uordblks, most = before + (size_t)PAUSES * 8;
    for (int i = 0; i < PAUSES; i++)
        hold_back(&c);
    /* librdkafka's thread may be behind: what it puts there later is taken out by the next. */
    for (int64_t end_us = loop_now_us() + PATIENCE_US; mallinfo2().uordblks >= most && loop_now_us() < end_us;) {
        hold_back(&c);
        loop_turn(c.loop, loop_now_us() + 10000);
    }
    size_t after = mallinfo2().uordblks;
    cr_assert_lt(after, most, "%zu bytes before, %zu after", before, after);
    kafka_pause_add(c.kafka, c.topic, 0);
    kafka_pause(c.kafka);
    send_one(&c);
    close_client(&c);
}

/* From here on the log goes into this file, for this test's process. */
static FILE *catch_log(void) {
    FILE *log = tmpfile();
    cr_assert_not_null(log);
    log_setup(LOG_TEXT, LOG_DEBUG);
    cr_assert_geq(dup2(fileno(log), STDERR_FILENO), 0);
    return log;
}

/* How many of its lines hold a text. */
static int count_lines(FILE *log, const char *text) {
    char line[2000];
    int count = 0;
    rewind(log);
    while (fgets(line, sizeof line, log) != NULL)
        count += strstr(line, text) != NULL;
    return count;
}

/* A socket that takes connections and says nothing. */
static int listen_anywhere(char *address, size_t size) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof here;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&here, sizeof here), 0);
    cr_assert_eq(listen(fd, 16), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&here, &length), 0);
    snprintf(address, size, "127.0.0.1:%d", ntohs(here.sin_port));
    return fd;
}

#define OPENINGS 200

/* librdkafka's words when its timer, once a second, finds that nobody has asked for a connection. */
#define BY_TIMER "Selected for cluster connection: no cluster connection"

Test(kafka, a_transactional_producer_connects_at_once, .timeout = 120) {
    static const struct kafka_property properties[] = {{"debug", "broker"}};
    char address[32];
    int listener = listen_anywhere(address, sizeof address);
    FILE *log = catch_log();
    for (int i = 0; i < OPENINGS; i++) {
        struct client c;
        open_producer(&c,
                      &(struct kafka_options){
                          .brokers = address, .transactional_id = "id", .properties = properties, .property_count = 1});
        int connection = accept(listener, NULL, NULL);
        cr_assert_geq(connection, 0);
        loop_turn(c.loop, 0);
        close(connection);
        close_client(&c);
    }
    int by_timer = count_lines(log, BY_TIMER);
    cr_assert_gt(ftell(log), 0);
    fclose(log);
    close(listener);
    cr_assert_eq(by_timer, 0, "%d of %d were connected by the timer", by_timer, OPENINGS);
}

static bool is_slow; /* whoever makes a client gets it when it is connected and knows its cluster */

rd_kafka_t *rd_kafka_new(rd_kafka_type_t type, rd_kafka_conf_t *conf, char *why, size_t why_size) {
    rd_kafka_t *(*theirs)(rd_kafka_type_t, rd_kafka_conf_t *, char *, size_t);
    *(void **)&theirs = dlsym(RTLD_NEXT, "rd_kafka_new");
    rd_kafka_t *rk = theirs(type, conf, why, why_size);
    if (is_slow && rk != NULL) {
        char *cluster = rd_kafka_clusterid(rk, 60000);
        cr_assert_not_null(cluster);
        rd_kafka_mem_free(rk, cluster);
    }
    return rk;
}

Test(kafka, a_transactional_producer_asks_for_no_list_of_all_topics_even_if_it_is_connected_already, .timeout = 120) {
    static const struct kafka_property properties[] = {{"debug", "metadata"}, {"test.mock.num.brokers", "1"}};
    struct client c;
    FILE *log = catch_log();
    is_slow = true;
    open_producer(
        &c, &(struct kafka_options){
                .brokers = "127.0.0.1:1", .transactional_id = "id", .properties = properties, .property_count = 2});
    loop_turn(c.loop, 0);
    close_client(&c);
    int of_brokers = count_lines(log, "Request metadata for brokers only");
    int of_all_topics = count_lines(log, "Request metadata for all topics");
    fclose(log);
    cr_assert(of_brokers > 0 && of_all_topics == 0, "%d for the brokers, %d for all topics", of_brokers, of_all_topics);
}

#define FENCINGS 40
#define PARTITIONS 5
#define ROWS 2000 /* of each partition: so many take librdkafka's thread a moment to report */

static void send_many(struct client *c) {
    static struct kafka_message m = {.value = "v", .value_size = 1, .id = "00000000-0000-0000-0000-000000000000"};
    int code;
    m.topic = c->topic;
    for (int32_t i = 0; i < PARTITIONS; i++)
        kafka_pause_add(c->kafka, c->topic, i);
    kafka_pause(c->kafka);
    for (m.partition = 0; m.partition < PARTITIONS; m.partition++)
        for (int i = 0; i < ROWS; i++)
            cr_assert_eq(kafka_produce(c->kafka, &m, &code), KAFKA_QUEUED);
    kafka_release(c->kafka);
}

/* All requests of a fenced producer are answered alike, one after the other, and the first is enough to give it up. */
Test(kafka, a_fenced_producer_is_closed_while_more_answers_come, .timeout = 120) {
    static const struct kafka_property properties[] = {{"test.mock.num.brokers", "1"}};
    enum { PRODUCE = 0 }; /* its number in Kafka's protocol */
    log_setup(LOG_TEXT, LOG_ERROR);
    for (int i = 0; i < FENCINGS; i++) {
        struct client c;
        open_producer(
            &c, &(struct kafka_options){
                    .brokers = "127.0.0.1:1", .transactional_id = "id", .properties = properties, .property_count = 1});
        c.may_be_refused = true;
        rd_kafka_t *rk = kafka_client(c.kafka);
        rd_kafka_mock_cluster_t *broker = rd_kafka_handle_mock_cluster(rk);
        rd_kafka_mock_topic_create(broker, "t", PARTITIONS, 1);
        for (int k = 0; k < 4 * PARTITIONS; k++)
            rd_kafka_mock_push_request_errors(broker, PRODUCE, 1, RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH);
        c.topic = kafka_topic_open(c.kafka, "t");
        cr_assert_null(rd_kafka_init_transactions(rk, 30000));
        cr_assert_null(rd_kafka_begin_transaction(rk));
        send_many(&c);
        while (c.refused == 0)
            loop_turn(c.loop, INT64_MAX);
        close_client(&c);
    }
}
