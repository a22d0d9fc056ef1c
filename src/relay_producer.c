/* relay_producer.c: opens, closes and replaces the producer: says once why one cannot go on, and spaces out attempts.
 */
#include "denpyo/relay_producer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/failpoint.h"
#include "denpyo/kafka_code.h"
#include "denpyo/log.h"
#include "denpyo/outcome_table.h"

#define FIRST_WAIT_US 250000
#define MOST_WAIT_US 10000000

struct trouble {
    const char *code, *reason, *meaning;
};

static bool find_trouble(const struct relay *r, struct trouble *t) {
    const struct publisher *p = &r->publisher;
    const char *reason;
    int code = kafka_fatal(p->kafka, &reason);
    if (code != 0)
        *t = (struct trouble){kafka_code_name(code), reason, outcome_table_find(OUTCOME_FATAL_ERROR, code)->sentence};
    else if (p->broken != NULL)
        *t = (struct trouble){kafka_code_name(p->broken_code), kafka_code_text(p->broken_code), p->broken->sentence};
    else if (r->txn.state == TXN_BROKEN)
        *t = (struct trouble){r->txn.fault.code, r->txn.fault.text, "The transactional producer failed."};
    else
        return false;
    if (strcmp(t->code, kafka_code_name(KAFKA_CODE_FENCED)) == 0)
        t->meaning = "Another producer has this transactional id (the next leader, or another outbox by mistake), or a "
                     "transaction of ours took too long.";
    return true;
}

static void note_success(struct relay *r) {
    if (r->producer_trouble[0] == 0 || r->publisher.dispatched == r->producer_dispatched)
        return;
    log_event(LOG_INFO, "the producer works again", LOG_END);
    r->producer_trouble[0] = 0;
    r->producer_wait_us = 0;
}

bool relay_producer_has_failed(struct relay *r, int64_t now_us) {
    struct trouble t;
    note_success(r);
    if (!find_trouble(r, &t))
        return false;
    if (r->producer_renew_us != 0)
        return true;
    if (strcmp(t.code, r->producer_trouble) != 0)
        log_event(LOG_ERROR, "the producer cannot go on and is made anew", log_str("code", t.code),
                  log_str("error", t.reason), log_str("meaning", t.meaning), LOG_END);
    snprintf(r->producer_trouble, sizeof r->producer_trouble, "%s", t.code);
    snprintf(r->producer_reason, sizeof r->producer_reason, "%.299s", t.reason);
    r->producer_renew_us = now_us + r->producer_wait_us;
    r->producer_wait_us = r->producer_wait_us == 0 ? FIRST_WAIT_US : r->producer_wait_us * 2;
    if (r->producer_wait_us > MOST_WAIT_US)
        r->producer_wait_us = MOST_WAIT_US;
    r->producer_dispatched = r->publisher.dispatched;
    return true;
}

bool relay_producer_is_due(struct relay *r, int64_t now_us) {
    if (now_us < r->producer_renew_us)
        return false;
    r->producer_renew_us = 0;
    return true;
}

bool relay_producer_open(struct relay *r, struct fault *f) {
    struct kafka *kafka = kafka_open(r->loop, &r->kafka_options, f);
    if (kafka == NULL)
        return false;
    publish_attach(&r->publisher, kafka);
    return true;
}

/* Batches whose payloads librdkafka may still read until it is destroyed. */
struct leftovers {
    struct relay *relay;
    struct batch_queue batches;
};

static void free_leftovers(void *context) {
    struct leftovers *left = context;
    struct batch *batch;
    while ((batch = batch_queue_pop(&left->batches)) != NULL)
        batch_free(batch);
    left->relay->closing--;
    free(left);
}

void relay_producer_close(struct relay *r, struct kafka *kafka, struct batch_queue batches) {
    struct leftovers *left = calloc(1, sizeof *left);
    if (left == NULL)
        abort();
    *left = (struct leftovers){r, batches};
    r->closing++;
    if (kafka != NULL)
        kafka_close(kafka, r->kafka_worker, free_leftovers, left);
    else
        free_leftovers(left);
}

void relay_producer_forget(struct relay *r) {
    struct batch_queue batches = r->ledger.open;
    r->ledger.open = (struct batch_queue){0};
    struct batch *batch;
    while ((batch = batch_queue_pop(&r->ledger.kept)) != NULL)
        batch_queue_push(&batches, batch);
    txn_forget(&r->txn);
    settle_reset(&r->settle);
    claim_reset(&r->claim);
    load_reset(&r->load);
    for (size_t i = 0; i < RELAY_CONNECTIONS; i++)
        pg_close(r->connections[i]); /* answers under way speak of what is forgotten */
    lease_reconnect(&r->lease);      /* a renewal's, too */
    sweep_reset(&r->sweep);
    struct kafka *kafka = publish_detach(&r->publisher);
    ledger_clear(&r->ledger);
    relay_producer_close(r, kafka, batches);
}

void relay_producer_renew(struct relay *r) {
    struct fault f = {0};
    relay_producer_forget(r);
    r->producer_renew_us = 0;
    if (!relay_producer_open(r, &f))
        r->end = f; /* the same settings worked before: nothing heals this */
}

void relay_producer_begin(struct relay *r) {
    if (r->kafka_options.transactional_id != NULL)
        txn_start(&r->txn);
    r->must_load = r->load_in_full = true;
}

void relay_producer_begin_anew(struct relay *r) {
    failpoint_pass(FAILPOINT_LOAD_ANEW);
    relay_producer_renew(r);
    relay_producer_begin(r);
}
