/* pg.h: one asynchronous PostgreSQL connection in pipeline mode; the only way the relay speaks to the database. */
#ifndef DENPYO_PG_H
#define DENPYO_PG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "denpyo/fault.h"
#include "denpyo/loop.h"
#include "denpyo/worker.h"

struct pg;
struct pg_result;

/*
 * A connection is opened, used and, at the first error of any kind, broken: what was asked of it and not answered is
 * dropped without a call-back. Whoever owns it sees PG_BROKEN, reads the fault, closes it, and starts again from what
 * the database says. One path for every trouble.
 */
enum pg_state { PG_CLOSED, PG_CONNECTING, PG_READY, PG_BROKEN };

/* One statement. index < PG_STATEMENTS is its place in the connection's list of prepared ones; text uses $1, $2, … */
#define PG_STATEMENTS 40
struct pg_statement {
    unsigned index;
    const char *name;
    const char *text;
};

/* The parameters of one call, at most PG_PARAMETERS. Text and bytes are borrowed until pg_send returns. */
#define PG_PARAMETERS 20
struct pg_call {
    int count;
    const char *values[PG_PARAMETERS];
    int sizes[PG_PARAMETERS];
    int formats[PG_PARAMETERS];
    char numbers[PG_PARAMETERS][24];
};
void pg_add_text(struct pg_call *call, const char *text); /* NULL is SQL null */
void pg_add_int(struct pg_call *call, int64_t number);
void pg_add_bool(struct pg_call *call, bool value);
void pg_add_binary(struct pg_call *call, const void *bytes, size_t size);

/* Called on success only, with a result that the driver frees afterwards unless pg_take was called on it. */
typedef void (*pg_done_fn)(void *context, struct pg_result *result);

struct pg_options {
    const char *conninfo;  /* libpq keywords or URI; copied */
    const char *role;      /* what the connection is for, goes into application_name ("denpyo claim"); copied */
    bool prepare;          /* named prepared statements, until a pooler refuses them; false = parse each time */
    int connect_timeout_s; /* unless the conninfo says otherwise */
};

/* Neither connects nor blocks. The loop and the worker must outlive it. */
struct pg *pg_new(struct loop *loop, struct worker *worker, const struct pg_options *options);
/* Closes whatever is open; a connection attempt under way is discarded when the worker brings it back. */
void pg_free(struct pg *pg);

/* Begins to connect, on the worker (name resolution blocks). CLOSED -> CONNECTING, then READY or BROKEN. Only
 * read-write servers are accepted unless the conninfo says otherwise (target_session_attrs). Server older than 13:
 * BROKEN, FAULT_FATAL. */
void pg_connect(struct pg *pg);
/* Drops the connection and all that is pending: -> CLOSED. Never blocks. */
void pg_close(struct pg *pg);

enum pg_state pg_state(const struct pg *pg);
/* Why it is BROKEN: code = SQLSTATE, PG_ROWS_HIDDEN or "connection", text = PostgreSQL's words in one line. */
const struct fault *pg_fault(const struct pg *pg);
/* Row-level security would have hidden rows from a transaction with row_security = off; FAULT_FATAL. */
#define PG_ROWS_HIDDEN "ROWS_HIDDEN"
#define PG_TIMED_OUT "57014" /* query_canceled, mostly by statement_timeout */
/* Whether the server should plan prepared statements anew; the caller has it done when told so. Often while the
 * connection is young, and so the tables may be, then once a minute. Not where nothing is prepared. */
bool pg_plans_are_old(struct pg *pg);
/* Number of calls that are not answered yet. */
size_t pg_pending(const struct pg *pg);
/* The user it connected as; "" while it is closed. */
const char *pg_user(const struct pg *pg);

/* Queues a statement (results in binary); `done` may be NULL. Ignored unless READY. */
void pg_send(struct pg *pg, const struct pg_statement *statement, const struct pg_call *call, pg_done_fn done,
             void *context);
/* Ends a group: the server executes and answers all that was sent since the last one. Outside BEGIN … COMMIT a group is
 * one transaction. */
void pg_sync(struct pg *pg);

/* Keeps the result beyond the call-back; free it with pg_result_free. */
struct pg_result *pg_take(struct pg_result *result);
void pg_result_free(struct pg_result *result);
size_t pg_result_bytes(const struct pg_result *result); /* memory it holds, in bytes */

int pg_rows(const struct pg_result *r);
bool pg_is_null(const struct pg_result *r, int row, int column);
/* Bytes of a value (NULL for SQL null), NUL-terminated after `size`; borrowed from the result. */
const char *pg_bytes(const struct pg_result *r, int row, int column, int *size);
const char *pg_text(const struct pg_result *r, int row, int column); /* "" for null */
int64_t pg_int(const struct pg_result *r, int row, int column);      /* int2, int4, int8 or boolean; 0 for null */

#endif
