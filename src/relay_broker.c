/* relay_broker.c: notices that no broker can be reached and that one is back, and says so once. */
#include "denpyo/relay_broker.h"

#include "denpyo/kafka_code.h"
#include "denpyo/kafka_lookup.h"
#include "denpyo/log.h"

#define START_BROKER_MS 10000 /* how long the start waits for a broker's first answer */

void relay_broker_note(struct relay *r) {
    const char *reason;
    if (r->publisher.kafka == NULL)
        return;
    bool is_down = kafka_is_down(r->publisher.kafka, &reason);
    if (is_down == r->broker_lost)
        return;
    r->broker_lost = is_down;
    if (is_down && r->state == RELAY_START)
        log_event(LOG_WARN, "no broker can be reached; trying on for a few seconds", log_str("error", reason), LOG_END);
    else if (is_down)
        log_event(LOG_WARN, "no broker can be reached; messages wait, nothing fails", log_str("error", reason),
                  LOG_END);
    else
        log_event(LOG_INFO, "broker is back", LOG_END);
}

static void on_first_answer(struct kafka_lookup *lookup) {
    struct relay *r = lookup->context;
    const char *reason;
    kafka_is_down(lookup->kafka, &reason);
    if (!lookup->reached)
        fault_set(&r->end, FAULT_RETRY, "BROKER",
                  "no broker of \"%s\" (option brokers) answered: %s; check --brokers, the network, and "
                  "kafka.security.protocol",
                  r->config->brokers, reason[0] ? reason : kafka_code_text(lookup->unreached_code));
    r->broker_answered = lookup->reached;
    kafka_lookup_free(lookup);
}

void relay_broker_await(struct relay *r) {
    struct kafka_lookup *first = kafka_lookup_new(r->publisher.kafka, 0, START_BROKER_MS, on_first_answer, r);
    kafka_lookup_submit(first, r->kafka_worker);
}
