/* statement.h: the statements the relay sends, by name, with the schema's name put in. */
#ifndef DENPYO_STATEMENT_H
#define DENPYO_STATEMENT_H

#include "denpyo/pg.h"

/* One for each file schemas/queries/<name>.sql that the relay uses. */
enum statement {
    STATEMENT_BEGIN,
    STATEMENT_COMMIT,
    STATEMENT_ROLLBACK,
    STATEMENT_FENCE,
    STATEMENT_SETTINGS,
    STATEMENT_FORGET_PLANS,
    STATEMENT_WINDOW_FIRST,
    STATEMENT_WINDOW_POLL,
    STATEMENT_CLAIM_PAGE,
    STATEMENT_CLAIM_MIXED,
    STATEMENT_CLAIM_PARKED,
    STATEMENT_CLAIM_PARKED_NEXT,
    STATEMENT_CLAIM_BATCH,
    STATEMENT_SETTLE_BATCH,
    STATEMENT_SETTLE_TOPICS,
    STATEMENT_SETTLE_PARKED,
    STATEMENT_SETTLE_UNPARK,
    STATEMENT_SETTLE_REPOINT,
    STATEMENT_RANGE_PARK,
    STATEMENT_RANGE_TAKE,
    STATEMENT_RANGE_DROP,
    STATEMENT_LOAD_ADOPT,
    STATEMENT_LOAD_CURSOR,
    STATEMENT_LOAD_OPEN,
    STATEMENT_LOAD_PAGE,
    STATEMENT_LOAD_PARKED,
    STATEMENT_LOAD_HOLDS,
    STATEMENT_LOAD_TAILS,
    STATEMENT_IDENTITY_LOOK,
    STATEMENT_IDENTITY_SERVER,
    STATEMENT_IDENTITY_FLOOR,
    STATEMENT_IDENTITY_RECORD,
    STATEMENT_SWEEP_PAGE,
    STATEMENT_LEASE_LOOK,
    STATEMENT_LEASE_INSERT,
    STATEMENT_LEASE_TAKE,
    STATEMENT_LEASE_RENEW,
    STATEMENT_LEASE_RELEASE,
    STATEMENT_COUNT
};

/* All statements for one schema. Texts are owned by the set. */
struct statements {
    struct pg_statement list[STATEMENT_COUNT];
};
void statements_init(struct statements *s, const char *schema);
void statements_free(struct statements *s);

/* Sends one of them; see pg_send. */
void statements_send(const struct statements *s, struct pg *pg, enum statement which, const struct pg_call *call,
                     pg_done_fn done, void *context);

#endif
