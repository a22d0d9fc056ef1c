/* session.h: a blocking PostgreSQL connection for the subcommands that are not the relay. */
#ifndef DENPYO_SESSION_H
#define DENPYO_SESSION_H

#include <stdbool.h>

#include "denpyo/config.h"
#include "denpyo/fault.h"

struct session;
struct session_result;

/*
 * Connects as the option `postgres` says (libpq's defaults and PG* variables fill the gaps), with application_name
 * "denpyo", UTF-8 (of a SQL_ASCII database: its bytes, whatever they are), and ten seconds to connect unless the
 * conninfo says otherwise. Blocks. On success *out is the caller's, who closes it; it copies what it needs of the
 * config. Faults: FAULT_USAGE "CONNINFO" (malformed; an unknown keyword is named, no part of a value is), FAULT_RETRY
 * "CONNECT" (libpq's reason and the option's origin), FAULT_FATAL "VERSION" (older than 13).
 */
bool session_open(struct session **out, const struct config *config, struct fault *f)
    __attribute__((warn_unused_result));
void session_close(struct session *session);

/*
 * Runs one statement with `count` text parameters ($1, …; NULL is SQL null) and waits for its rows. Blocks. On success
 * *out, unless out is NULL, is the caller's. Faults: code is the SQLSTATE (or "CONNECT"), the text PostgreSQL's own
 * words in one line and what to do: an absent schema -> denpyo init, a missing privilege -> which GRANT. What a
 * function of the outbox refuses (P0001) is given without PostgreSQL's name.
 */
bool session_query(struct session *session, const char *sql, int count, const char *const *parameters,
                   struct session_result **out, struct fault *f) __attribute__((warn_unused_result));

/* Runs a script of any number of statements, of which no rows are wanted. Blocks. Faults as session_query. */
bool session_run(struct session *session, const char *script, struct fault *f) __attribute__((warn_unused_result));

/* What the fault of a missing privilege tells people to do, instead of granting the reader's role. Copied. */
void session_set_remedy(struct session *session, const char *remedy);
/* The same in usual words: that this role be granted to the session's user. */
void session_set_remedy_role(struct session *session, const char *role);

/* 150004 for 15.4. */
int session_server_version(const struct session *session);
/* The server process as the connection was told; a pooler tells another number than pg_backend_pid(). */
int session_backend_pid(const struct session *session);

int session_rows(const struct session_result *result);
/* A value as PostgreSQL's text form, "" for SQL null. Borrowed from the result. */
const char *session_text(const struct session_result *result, int row, int column);
bool session_is_null(const struct session_result *result, int row, int column);
void session_result_free(struct session_result *result);

#endif
