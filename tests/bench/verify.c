/* verify.c: compares a topic's records with the outbox's rows: none missing, doubled, altered, misplaced or overtaken.
 */
#include <libpq-fe.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "denpyo/envelope.h"
#include "denpyo/partition.h"

struct row {
    uint64_t value_hash;
    uint32_t key; /* index into keys */
    uint32_t topic_hash;
    bool exists, seen;
    unsigned char message_id[16];
};

struct key {
    uint64_t hash;
    int64_t newest; /* highest row number seen in the topic; 0 = none */
};

/* Rows by their number; keys in an open-addressed table whose size is a power of two above twice their number. */
struct expected {
    struct row *rows;
    int64_t row_count, row_limit;
    struct key *keys;
    uint64_t key_slots;
    bool checks_topics; /* many topics: which one, too */
};

struct verdict {
    int64_t records, doubled, invented, altered, misplaced, overtaken, wrong_id;
};

static uint64_t hash_bytes(const void *bytes, size_t size) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const unsigned char *at = bytes, *end = at + size; at < end; at++)
        hash = (hash ^ *at) * UINT64_C(0x100000001b3);
    return hash | 1; /* 0 marks a free slot */
}

static uint32_t find_key(struct expected *e, uint64_t hash) {
    uint64_t slot = (hash >> 20) & (e->key_slots - 1);
    while (e->keys[slot].hash != 0 && e->keys[slot].hash != hash)
        slot = (slot + 1) & (e->key_slots - 1);
    e->keys[slot].hash = hash;
    return (uint32_t)slot;
}

static void load_row(struct expected *e, const PGresult *r) {
    const char *payload = PQgetvalue(r, 0, 1);
    size_t size = (size_t)PQgetlength(r, 0, 1);
    int64_t n = client_row_number(payload, size);
    if (n < 1 || n > e->row_limit || e->rows[n].exists)
        client_die("the outbox holds a row that this benchmark did not write: %.*s", (int)size, payload);
    struct row *row = &e->rows[n];
    row->exists = true;
    row->value_hash = hash_bytes(payload, size);
    row->key = find_key(e, hash_bytes(PQgetvalue(r, 0, 0), (size_t)PQgetlength(r, 0, 0)));
    row->topic_hash = (uint32_t)hash_bytes(PQgetvalue(r, 0, 3), (size_t)PQgetlength(r, 0, 3));
    memcpy(row->message_id, PQgetvalue(r, 0, 2), sizeof row->message_id);
    e->row_count++;
}

static void load(struct expected *e, const char *conninfo, int64_t row_limit) {
    e->row_limit = row_limit;
    e->rows = calloc((size_t)row_limit + 1, sizeof *e->rows);
    for (e->key_slots = 1024; e->key_slots < 2 * (uint64_t)row_limit;)
        e->key_slots *= 2;
    e->keys = calloc(e->key_slots, sizeof *e->keys);
    if (e->rows == NULL || e->keys == NULL)
        client_die("out of memory");
    PGconn *db = PQconnectdb(conninfo);
    const char *query = "select key, payload, message_id, topic from outbox.message";
    if (PQstatus(db) != CONNECTION_OK || !PQsendQueryParams(db, query, 0, NULL, NULL, NULL, NULL, 1) ||
        !PQsetSingleRowMode(db))
        client_die("%s", PQerrorMessage(db));
    PGresult *r;
    while ((r = PQgetResult(db)) != NULL) {
        ExecStatusType status = PQresultStatus(r);
        if (status == PGRES_SINGLE_TUPLE)
            load_row(e, r);
        else if (status != PGRES_TUPLES_OK)
            client_die("%s", PQerrorMessage(db));
        PQclear(r);
    }
    PQfinish(db);
}

static bool has_id(const rd_kafka_message_t *m, const struct row *row) {
    rd_kafka_headers_t *headers;
    const void *value;
    size_t size;
    char id[ENVELOPE_ID_SIZE];
    envelope_id(row->message_id, id);
    return rd_kafka_message_headers(m, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR &&
           rd_kafka_header_get_last(headers, ENVELOPE_ID_NAME, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR &&
           size == sizeof id && memcmp(value, id, size) == 0;
}

static void check_record(struct expected *e, struct verdict *v, const rd_kafka_message_t *m, int partitions, bool ids) {
    v->records++;
    int64_t n = m->payload == NULL ? -1 : client_row_number(m->payload, m->len);
    if (n < 1 || n > e->row_limit || !e->rows[n].exists) {
        v->invented++;
        return;
    }
    struct row *row = &e->rows[n];
    struct key *key = &e->keys[row->key];
    v->doubled += row->seen;
    row->seen = true;
    v->altered += hash_bytes(m->payload, m->len) != row->value_hash || m->key == NULL ||
                  hash_bytes(m->key, m->key_len) != key->hash;
    const char *topic = e->checks_topics ? rd_kafka_topic_name(m->rkt) : NULL;
    v->misplaced += topic != NULL && (uint32_t)hash_bytes(topic, strlen(topic)) != row->topic_hash;
    v->misplaced += m->key == NULL || m->partition != partition_of_key(m->key, m->key_len, partitions);
    v->overtaken += !e->checks_topics && n < key->newest; /* a key's rows have an order within a topic only */
    v->wrong_id += ids && !has_id(m, row);
    if (n > key->newest)
        key->newest = n;
}

/* Reads until each partition's end was met. */
static void read_topic(struct expected *e, struct verdict *v, struct client_topic *t, bool ids) {
    for (int ends = 0; ends < t->total;) {
        rd_kafka_message_t *m = rd_kafka_consume_queue(t->queue, 30000);
        if (m == NULL)
            client_die("the topic's end did not come");
        if (m->err == RD_KAFKA_RESP_ERR_NO_ERROR)
            check_record(e, v, m, t->partition_count, ids);
        else if (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF)
            ends++;
        else
            client_die("reading: %s", rd_kafka_message_errstr(m));
        rd_kafka_message_destroy(m);
    }
}

int main(int argc, char **argv) {
    if (argc != 7)
        client_die("usage: verify CONNINFO BROKERS TOPIC TOPICS HIGHEST_ROW_NUMBER ids|no-ids");
    int topics = (int)strtol(argv[4], NULL, 10); /* 0: the one named TOPIC; else TOPIC-0, TOPIC-1, … */
    struct expected e = {.checks_topics = topics > 0};
    struct verdict v = {0};
    struct client_topic t;
    load(&e, argv[1], strtoll(argv[5], NULL, 10));
    client_topic_open(&t, argv[2], argv[3], topics);
    read_topic(&e, &v, &t, strcmp(argv[6], "ids") == 0);
    client_topic_close(&t);
    int64_t missing = 0;
    for (int64_t n = 1; n <= e.row_limit; n++)
        missing += e.rows[n].exists && !e.rows[n].seen;
    printf("{\"rows\": %lld, \"records\": %lld, \"missing\": %lld, \"doubled\": %lld, \"invented\": %lld, "
           "\"altered\": %lld, \"misplaced\": %lld, \"overtaken\": %lld, \"wrong_id\": %lld}\n",
           (long long)e.row_count, (long long)v.records, (long long)missing, (long long)v.doubled,
           (long long)v.invented, (long long)v.altered, (long long)v.misplaced, (long long)v.overtaken,
           (long long)v.wrong_id);
    free(e.rows);
    free(e.keys);
    return missing + v.doubled + v.invented + v.altered + v.misplaced + v.overtaken + v.wrong_id > 0;
}
