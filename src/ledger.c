/* ledger.c: opens fenced transactions, and forgets what is in memory when the database has to be asked again. */
#include "denpyo/ledger.h"

#include <stdio.h>

#define LOOK_FACTOR 10 /* nobody waits for a transaction that only reads, and a load may have much to read */

void ledger_init(struct ledger *ledger, const struct statements *statements, const struct lease *lease,
                 int64_t timeout_ms) {
    *ledger =
        (struct ledger){.statements = statements, .lease = lease, .timeout_ms = timeout_ms, .retry_at_us = INT64_MAX};
    window_reset(&ledger->cursor);
}

void ledger_clear(struct ledger *ledger) {
    struct batch *batch;
    while ((batch = batch_queue_pop(&ledger->open)) != NULL || (batch = batch_queue_pop(&ledger->kept)) != NULL)
        batch_free(batch);
    window_reset(&ledger->cursor);
    ledger->newest_id = ledger->settled_id = 0;
    ledger->retry_open = 0;
    ledger->retry_at_us = INT64_MAX;
    ledger->ask_next_due = true;
    ledger->is_fenced = false;
}

static void begin(const struct ledger *ledger, struct pg *pg) {
    statements_send(ledger->statements, pg, STATEMENT_BEGIN, NULL, NULL, NULL);
    if (pg_plans_are_old(pg))
        statements_send(ledger->statements, pg, STATEMENT_FORGET_PLANS, NULL, NULL, NULL);
}

void ledger_look(const struct ledger *ledger, struct pg *pg, enum statement which, const struct pg_call *call,
                 pg_done_fn done, void *context) {
    struct pg_call settings = {0};
    pg_add_int(&settings, LOOK_FACTOR * ledger->timeout_ms);
    begin(ledger, pg);
    statements_send(ledger->statements, pg, STATEMENT_SETTINGS, &settings, NULL, NULL);
    statements_send(ledger->statements, pg, which, call, done, context);
    statements_send(ledger->statements, pg, STATEMENT_COMMIT, NULL, NULL, NULL);
    pg_sync(pg);
}

void ledger_drop_kept(struct ledger *ledger) {
    struct batch_queue all = ledger->kept;
    struct batch *batch;
    ledger->kept = (struct batch_queue){0};
    while ((batch = batch_queue_pop(&all)) != NULL)
        if (batch->on_wire > 0)
            batch_queue_push(&ledger->kept, batch);
        else
            batch_free(batch);
}

void ledger_begin(const struct ledger *ledger, struct pg *pg, bool is_durable) {
    char timeout[32];
    snprintf(timeout, sizeof timeout, "%lld", (long long)ledger->timeout_ms);
    struct pg_call call = {0};
    pg_add_text(&call, ledger->lease->relay);
    pg_add_int(&call, ledger->lease->epoch);
    pg_add_text(&call, ledger->lease->holder);
    pg_add_text(&call, is_durable ? "on" : "off");
    pg_add_text(&call, timeout);
    begin(ledger, pg);
    statements_send(ledger->statements, pg, STATEMENT_FENCE, &call, NULL, NULL);
}
