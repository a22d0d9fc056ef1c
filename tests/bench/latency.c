/* latency.c: commits single rows at a steady pace and notes when each was committed and when a consumer saw it. */
#include <libpq-fe.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client.h"

enum { CONNECTIONS = 16, KEYS_EACH = 500, NOTE_SIZE = 170, PATIENCE_US = 30000000 };

/* One row's times in us; 0 = not yet. */
struct times {
    int64_t id, due, committed, seen;
};

/* The run; rows[n - 1] belongs to the writer with number (n - 1) % CONNECTIONS until it is seen. */
static struct times *rows;
static int64_t row_count, first, interval_ns, start_us; /* rows carry the numbers first + 1 … first + row_count */
static const char *conninfo, *topic, *statement;

static void wait_until(int64_t us) {
    struct timespec until = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, NULL) != 0)
        ;
}

/* A writer has its own keys, so that its commits order them. */
static void insert(PGconn *db, int writer, int64_t n, unsigned *random) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char key[40], note[NOTE_SIZE + 1], payload[400];
    snprintf(key, sizeof key, "customer-%d", writer + CONNECTIONS * (rand_r(random) % KEYS_EACH));
    for (int i = 0; i < NOTE_SIZE; i++)
        note[i] = letters[rand_r(random) % 64];
    note[NOTE_SIZE] = 0;
    snprintf(payload, sizeof payload,
             "{\"n\":%lld,\"customer\":\"%s\",\"note\":\"%s\",\"total\":%d,\"items\":[{\"sku\":\"%08x\"}]}",
             (long long)(first + n), key, note, rand_r(random) % 100000, (unsigned)rand_r(random));
    PGresult *r = PQexecPrepared(db, "insert", 3, (const char *const[]){topic, key, payload}, NULL, NULL, 0);
    rows[n - 1].committed = client_now_us();
    if (PQresultStatus(r) != PGRES_TUPLES_OK)
        client_die("insert: %s", PQerrorMessage(db));
    rows[n - 1].id = strtoll(PQgetvalue(r, 0, 0), NULL, 10);
    PQclear(r);
}

static void *write_rows(void *number) {
    int writer = *(int *)number;
    unsigned random = (unsigned)writer + 1;
    PGconn *db = PQconnectdb(conninfo);
    PGresult *r = PQprepare(db, "insert", statement, 0, NULL);
    if (PQresultStatus(r) != PGRES_COMMAND_OK)
        client_die("%s", PQerrorMessage(db));
    PQclear(r);
    for (int64_t n = writer + 1; n <= row_count; n += CONNECTIONS) {
        rows[n - 1].due = start_us + n * interval_ns / 1000;
        wait_until(rows[n - 1].due);
        insert(db, writer, n, &random);
    }
    PQfinish(db);
    return NULL;
}

/* Until all rows are seen, or 30 s without any. */
static void read_rows(struct client_topic *t) {
    int64_t last_us = client_now_us();
    for (int64_t left = row_count; left > 0;) {
        rd_kafka_message_t *m = rd_kafka_consume_queue(t->queue, 1000);
        int64_t now_us = client_now_us();
        if (now_us - last_us > PATIENCE_US + interval_ns / 1000)
            client_die("%lld rows were not seen within 30 s of the last one", (long long)left);
        if (m == NULL)
            continue;
        int64_t n = m->err != RD_KAFKA_RESP_ERR_NO_ERROR ? -1 : client_row_number(m->payload, m->len) - first;
        if (n >= 1 && n <= row_count && rows[n - 1].seen == 0) {
            rows[n - 1].seen = last_us = now_us;
            left--;
        }
        rd_kafka_message_destroy(m);
    }
}

int main(int argc, char **argv) {
    if (argc != 8)
        client_die(
            "usage: latency CONNINFO BROKERS|- TOPIC INTERVAL_NS FIRST ROWS INSERT (of $1 topic, $2 key, $3 payload, "
            "returning a "
            "number)");
    conninfo = argv[1];
    topic = argv[3];
    interval_ns = strtoll(argv[4], NULL, 10);
    first = strtoll(argv[5], NULL, 10);
    row_count = strtoll(argv[6], NULL, 10);
    statement = argv[7];
    bool is_watched = strcmp(argv[2], "-") != 0;
    rows = calloc((size_t)row_count, sizeof *rows);
    if (rows == NULL)
        client_die("out of memory");
    struct client_topic t;
    if (is_watched)
        client_topic_open(&t, argv[2], topic, 0);
    start_us = client_now_us() + 500000; /* when all connections are made */
    pthread_t writers[CONNECTIONS];
    int numbers[CONNECTIONS];
    for (int i = 0; i < CONNECTIONS; i++) {
        numbers[i] = i;
        if (pthread_create(&writers[i], NULL, write_rows, &numbers[i]) != 0)
            client_die("cannot start a thread");
    }
    if (is_watched)
        read_rows(&t);
    for (int i = 0; i < CONNECTIONS; i++)
        pthread_join(writers[i], NULL);
    if (is_watched)
        client_topic_close(&t);
    for (int64_t i = 0; i < row_count; i++)
        printf("%lld %lld %lld %lld\n", (long long)rows[i].id, (long long)rows[i].due, (long long)rows[i].committed,
               (long long)rows[i].seen);
    free(rows);
    return 0;
}
