/* relay_condition.c: the table of conditions that keep a leader from its work, worst first. */
#include "denpyo/relay_condition.h"

#include <stdio.h>

#include "denpyo/kafka.h"

#define WORTH_TELLING_US 1000000 /* every term begins with a look; only one that lasts is told */

static bool lasts(const struct relay *r, int64_t now) {
    return r->state == RELAY_LOAD && now >= r->entered_us + WORTH_TELLING_US;
}

static bool has_no_broker(struct relay *r, int64_t now) {
    const char *reason;
    (void)now;
    if (!r->broker_lost || r->publisher.kafka == NULL)
        return false;
    kafka_is_down(r->publisher.kafka, &reason);
    snprintf(r->condition_detail, sizeof r->condition_detail, "%s; messages wait, nothing fails",
             reason[0] ? reason : "no broker can be reached");
    return true;
}

/* Until something was dispatched, or nothing waits that could prove that the new one works. */
static bool has_no_producer(struct relay *r, int64_t now) {
    (void)now;
    snprintf(r->condition_detail, sizeof r->condition_detail, "%s: %s; it is made anew", r->producer_trouble,
             r->producer_reason);
    bool is_unproven = r->producer_renew_us != 0 || r->state == RELAY_LOAD || r->ledger.open.rows > 0;
    return r->producer_trouble[0] != 0 && is_unproven;
}

static bool is_fencing(struct relay *r, int64_t now) {
    snprintf(r->condition_detail, sizeof r->condition_detail, "waits until %s's older transactions have ended",
             r->config->transactional_id);
    return r->txn.state == TXN_INIT && lasts(r, now);
}

static bool is_looking_up(struct relay *r, int64_t now) {
    const struct reconcile *rc = &r->reconcile;
    if (rc->state != RECONCILE_BUSY || rc->tail == NULL || !lasts(r, now))
        return false;
    snprintf(r->condition_detail, sizeof r->condition_detail,
             "looks up in the topics which of %zu messages arrived, before it sends any again%s%.400s",
             rc->tail->wanted_count, rc->failure[0] ? "; it failed and is tried again: " : "", rc->failure);
    return true;
}

static bool is_loading(struct relay *r, int64_t now) {
    snprintf(r->condition_detail, sizeof r->condition_detail, "reads where the ledger stands");
    return lasts(r, now);
}

static const struct {
    const char *word;
    bool (*holds)(struct relay *r, int64_t now); /* and writes the detail */
} conditions[] = {
    {"no broker", has_no_broker},  {"no producer", has_no_producer}, {"fencing", is_fencing},
    {"recovering", is_looking_up}, {"loading", is_loading},
};

void relay_condition_note(struct relay *r, int64_t now_us) {
    /* Nothing else is asked, and nothing written, while all is well. */
    bool may_hold = r->broker_lost || r->producer_trouble[0] != 0 || r->state == RELAY_LOAD;
    for (size_t i = 0; may_hold && i < sizeof conditions / sizeof *conditions; i++)
        if (conditions[i].holds(r, now_us)) {
            lease_describe(&r->lease, conditions[i].word, r->condition_detail);
            return;
        }
    lease_describe(&r->lease, NULL, NULL);
}
