/* relay_producer.c: notices a producer that cannot go on, says why once, and spaces out the attempts to replace it. */
#include "denpyo/relay_producer.h"

#include <stdio.h>
#include <string.h>

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
