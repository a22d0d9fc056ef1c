/* statement.c: loads the relay's statements from the embedded SQL files. */
#include "denpyo/statement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/sql.h"

static const char *const names[STATEMENT_COUNT] = {
    [STATEMENT_BEGIN] = "begin",
    [STATEMENT_COMMIT] = "commit",
    [STATEMENT_ROLLBACK] = "rollback",
    [STATEMENT_FENCE] = "fence",
    [STATEMENT_SETTINGS] = "settings",
    [STATEMENT_FORGET_PLANS] = "forget_plans",
    [STATEMENT_WINDOW_FIRST] = "window_first",
    [STATEMENT_WINDOW_POLL] = "window_poll",
    [STATEMENT_CLAIM_PAGE] = "claim_page",
    [STATEMENT_CLAIM_MIXED] = "claim_mixed",
    [STATEMENT_CLAIM_PARKED] = "claim_parked",
    [STATEMENT_CLAIM_PARKED_NEXT] = "claim_parked_next",
    [STATEMENT_CLAIM_BATCH] = "claim_batch",
    [STATEMENT_SETTLE_BATCH] = "settle_batch",
    [STATEMENT_SETTLE_TOPICS] = "settle_topics",
    [STATEMENT_SETTLE_PARKED] = "settle_parked",
    [STATEMENT_SETTLE_UNPARK] = "settle_unpark",
    [STATEMENT_SETTLE_REPOINT] = "settle_repoint",
    [STATEMENT_RANGE_PARK] = "range_park",
    [STATEMENT_RANGE_TAKE] = "range_take",
    [STATEMENT_RANGE_DROP] = "range_drop",
    [STATEMENT_LOAD_ADOPT] = "load_adopt",
    [STATEMENT_LOAD_CURSOR] = "load_cursor",
    [STATEMENT_LOAD_OPEN] = "load_open",
    [STATEMENT_LOAD_PAGE] = "load_page",
    [STATEMENT_LOAD_PARKED] = "load_parked",
    [STATEMENT_LOAD_HOLDS] = "load_holds",
    [STATEMENT_LOAD_TAILS] = "load_tails",
    [STATEMENT_IDENTITY_LOOK] = "identity_look",
    [STATEMENT_IDENTITY_SERVER] = "identity_server",
    [STATEMENT_IDENTITY_FLOOR] = "identity_floor",
    [STATEMENT_IDENTITY_RECORD] = "identity_record",
    [STATEMENT_SWEEP_PAGE] = "sweep_page",
    [STATEMENT_LEASE_LOOK] = "lease_look",
    [STATEMENT_LEASE_INSERT] = "lease_insert",
    [STATEMENT_LEASE_TAKE] = "lease_take",
    [STATEMENT_LEASE_RENEW] = "lease_renew",
    [STATEMENT_LEASE_RELEASE] = "lease_release",
};
_Static_assert(STATEMENT_COUNT <= PG_STATEMENTS, "a connection remembers PG_STATEMENTS prepared statements");

/* The name says which text it stands for: behind a pooler, server connections are shared with relays of other schemas
 * and versions, and a prepared statement of one must never be taken for another's. FNV-1a, 64 bits. */
static char *unique_name(const char *name, const char *text) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const unsigned char *c = (const unsigned char *)text; *c != 0; c++)
        hash = (hash ^ *c) * 0x100000001b3;
    char unique[64];
    snprintf(unique, sizeof unique, "%s_%016llx", name, (unsigned long long)hash);
    char *copy = strdup(unique);
    if (copy == NULL)
        abort();
    return copy;
}

void statements_init(struct statements *s, const char *schema) {
    for (unsigned i = 0; i < STATEMENT_COUNT; i++) {
        char path[80];
        snprintf(path, sizeof path, "queries/%s.sql", names[i]);
        char *text = sql_text(path, &(struct sql_names){.schema = schema});
        s->list[i] = (struct pg_statement){.index = i, .name = unique_name(names[i], text), .text = text};
    }
}

void statements_free(struct statements *s) {
    for (unsigned i = 0; i < STATEMENT_COUNT; i++) {
        free((char *)(uintptr_t)s->list[i].name);
        free((char *)(uintptr_t)s->list[i].text);
    }
}

void statements_send(const struct statements *s, struct pg *pg, enum statement which, const struct pg_call *call,
                     pg_done_fn done, void *context) {
    pg_send(pg, &s->list[which], call, done, context);
}
