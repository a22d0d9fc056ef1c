/* hotpath.c: walks rows through decode, gate, settlement and close without servers, for callgrind to count. */
#include <assert.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <valgrind/callgrind.h>

/* The driver as it ships, but what it would hand to a server goes nowhere. */
#define PQsendPrepare(...) 1
#define PQsendQueryPrepared(connection, name, count, values, sizes, formats, binary) swallow(count, values, sizes)
#define PQpipelineSync(connection) 1
#define PQflush(connection) 0
static int swallow(int count, const char *const *values, const int *sizes);
#include "../../src/pg.c"

#include "denpyo/ledger.h"
#include "denpyo/publish.h"
#include "denpyo/route.h"
#include "denpyo/settle.h"

enum { ROWS = 5000, PAGES = 4, KEYS = 1000, PARTITIONS = 8, PAYLOAD_BYTES = 290, COLUMNS = PAGE_OVERSIZE + 1 };

static uint64_t swallowed;
static int swallow(int count, const char *const *values, const int *sizes) {
    for (int i = 0; i < count; i++)
        swallowed += values[i] == NULL ? 0 : (uint64_t)sizes[i] + 1;
    return 1;
}

/* ---- a broker that acknowledges everything; kafka.c is not linked ---- */

static struct row *sent[ROWS];
static size_t sent_count;

enum kafka_produced kafka_produce(struct kafka *k, const struct kafka_message *message, int *code) {
    (void)k;
    *code = 0;
    sent[sent_count++] = message->opaque;
    return KAFKA_QUEUED;
}
int64_t kafka_message_max_bytes(const struct kafka *k) {
    (void)k;
    return 1048588;
}
int64_t kafka_group_max_bytes(const struct kafka *k) {
    return kafka_message_max_bytes(k);
}
int64_t kafka_group_max_messages(const struct kafka *k) {
    (void)k;
    return 10000;
}
bool kafka_is_compressing(const struct kafka *k) {
    (void)k;
    return true;
}
bool kafka_is_down(const struct kafka *k, const char **reason) {
    (void)k;
    *reason = "";
    return false;
}
void kafka_pause_add(struct kafka *k, const struct kafka_topic *topic, int32_t partition) {
    (void)k, (void)topic, (void)partition;
}
void kafka_pause(struct kafka *k) {
    (void)k;
}
void kafka_release(struct kafka *k) {
    (void)k;
}
struct kafka_topic *kafka_topic_open(struct kafka *k, const char *name) {
    (void)k, (void)name;
    abort();
}
void kafka_topic_close(struct kafka_topic *topic) {
    (void)topic;
}
struct kafka_lookup *kafka_lookup_new(struct kafka *k, size_t count, int timeout_ms,
                                      void (*done)(struct kafka_lookup *), void *context) {
    (void)k, (void)count, (void)timeout_ms, (void)done, (void)context;
    abort(); /* the topic is known */
}
void kafka_lookup_submit(struct kafka_lookup *lookup, struct worker *worker) {
    (void)lookup, (void)worker;
}
void kafka_lookup_free(struct kafka_lookup *lookup) {
    (void)lookup;
}

void statements_send(const struct statements *s, struct pg *pg, enum statement which, const struct pg_call *call,
                     pg_done_fn done, void *context) {
    pg_send(pg, &s->list[which], call, done, context);
}

/* ---- a page as PostgreSQL would send it ---- */

static void put_number(PGresult *page, int row, int column, uint64_t number, int bytes) {
    char wire[8];
    for (int i = 0; i < bytes; i++)
        wire[i] = (char)(number >> 8 * (bytes - 1 - i));
    PQsetvalue(page, row, column, wire, bytes);
}

static PGresult *make_page(int64_t first_id, const char *headers) {
    PGresAttDesc columns[COLUMNS];
    memset(columns, 0, sizeof columns);
    char name[] = "c", payload[PAYLOAD_BYTES], uuid[16], key[32];
    for (int i = 0; i < COLUMNS; i++)
        columns[i] = (PGresAttDesc){.name = name, .format = 1};
    PGresult *page = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    PQsetResultAttrs(page, COLUMNS, columns);
    memset(payload, 'x', sizeof payload);
    for (int i = 0; i < ROWS; i++) {
        for (int column = 0; column < COLUMNS; column++)
            PQsetvalue(page, i, column, NULL, -1);
        put_number(page, i, PAGE_ID, (uint64_t)(first_id + i), 8);
        for (size_t b = 0; b < sizeof uuid; b++)
            uuid[b] = (char)((first_id + i) * 31 + (int64_t)b * 7);
        PQsetvalue(page, i, PAGE_MESSAGE_ID, uuid, sizeof uuid);
        PQsetvalue(page, i, PAGE_TOPIC, "orders", 6);
        PQsetvalue(page, i, PAGE_KEY, key, snprintf(key, sizeof key, "customer-%05d", i * 7919 % KEYS));
        PQsetvalue(page, i, PAGE_PAYLOAD, payload, sizeof payload);
        if (headers != NULL)
            PQsetvalue(page, i, PAGE_HEADERS, (char *)(uintptr_t)headers, (int)strlen(headers));
    }
    return page;
}

/* ---- the walk ---- */

static struct topics *all_topics;
static struct batch *decoded;

static void on_page(void *context, struct pg_result *r) {
    (void)context;
    decoded = batch_from_result(r, (size_t)pg_rows(r), false, all_topics);
}

/* PostgreSQL has done all that was asked. */
static void answer_all(struct pg *pg) {
    while (pg->count > 0) {
        deliver(pg, PQmakeEmptyPGresult(NULL, PGRES_COMMAND_OK));
        pg->first = (pg->first + 1) % pg->capacity;
        pg->count--;
    }
}

struct walk {
    struct pg *pg;
    struct publisher publisher;
    struct settle settle;
    struct ledger *ledger;
};

static void page(struct walk *w, int64_t number, const char *headers, bool counts) {
    PGresult *libpq = make_page(1 + number * ROWS, headers);
    expect(w->pg, REQUEST_QUERY, on_page, NULL);
    CALLGRIND_ZERO_STATS;
    deliver(w->pg, libpq);
    if (counts)
        CALLGRIND_DUMP_STATS_AT("decode");
    w->pg->first = w->pg->count = 0;
    decoded->id = number + 1;
    batch_queue_push(&w->ledger->open, decoded);

    CALLGRIND_ZERO_STATS;
    publish_batch(&w->publisher, decoded);
    while (w->publisher.listed_first != NULL)
        publish_step(&w->publisher);
    if (counts)
        CALLGRIND_DUMP_STATS_AT(headers == NULL ? "send" : "send with headers");
    assert(sent_count == ROWS);

    CALLGRIND_ZERO_STATS;
    for (size_t i = 0; i < ROWS; i++)
        publish_report(&w->publisher, &(struct kafka_report){.opaque = sent[i],
                                                             .delivery = KAFKA_ACKNOWLEDGED,
                                                             .partition = sent[i]->partition,
                                                             .offset = number * ROWS + (int64_t)i});
    if (counts)
        CALLGRIND_DUMP_STATS_AT("report");
    sent_count = 0;
    assert(decoded->open == 0);

    CALLGRIND_ZERO_STATS;
    settle_step(&w->settle, true);
    if (counts)
        CALLGRIND_DUMP_STATS_AT("settle");
    assert(w->settle.sent == 1);

    CALLGRIND_ZERO_STATS;
    answer_all(w->pg);
    if (counts)
        CALLGRIND_DUMP_STATS_AT("close");
    assert(w->ledger->open.count == 0);
}

int main(void) {
    static struct statements statements;
    static struct ledger ledger;
    static struct walk w = {.ledger = &ledger};
    static const char headers[] = "{\"trace\": \"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\", "
                                  "\"type\": \"order-paid\", \"tenant\": null}";
    struct lease lease = {.relay = "default", .epoch = 1, .held = true};
    struct loop *loop = loop_new();
    for (unsigned i = 0; i < STATEMENT_COUNT; i++)
        statements.list[i] = (struct pg_statement){.index = i, .name = "s", .text = "s"};
    w.pg = pg_new(loop, NULL, &(struct pg_options){.conninfo = "", .role = "", .prepare = true});
    w.pg->state = PG_READY;
    ledger_init(&ledger, &statements, &lease, 1000);
    publish_init(&w.publisher, &(struct publish_options){.metadata_refresh_ms = 1 << 30, .absent_probe_ms = 1 << 30},
                 NULL);
    w.publisher.ask_again_us = INT64_MAX;
    publish_attach(&w.publisher, (struct kafka *)&w); /* never looked into */
    all_topics = &w.publisher.topics;
    topic_set_partitions(topics_get(all_topics, "orders", 6), PARTITIONS, 10000);
    settle_init(&w.settle, &ledger, &w.publisher.holds, &w.publisher.overdue, w.pg);
    for (int number = 0; number < PAGES; number++) /* the first two find the arrays' sizes */
        page(&w, number, number % 2 == 0 ? NULL : headers, number >= 2);
    printf("%d\n", ROWS);
    return swallowed == 0;
}
