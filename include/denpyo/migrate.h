/* migrate.h: brings the outbox schema to the version this binary knows, and says whether it is there. */
#ifndef DENPYO_MIGRATE_H
#define DENPYO_MIGRATE_H

#include <stdbool.h>
#include <stdio.h>

#include "denpyo/fault.h"
#include "denpyo/session.h"
#include "denpyo/sql.h"

/* The number of the newest migration in this binary: the schema version it works with. */
int migrate_latest(void);

/*
 * Judges a schema version that was read from the database (queries/migrate_version.sql): FAULT_FATAL "SCHEMA" when it
 * is older or newer than this binary knows. Does not block; the relay uses it, too.
 */
bool migrate_judge(int version, const char *schema, struct fault *f) __attribute__((warn_unused_result));

/* Is the schema there, ours, and of the right version? Blocks. Faults: session_query's, "SCHEMA". */
bool migrate_check(struct session *session, const struct sql_names *names, struct fault *f)
    __attribute__((warn_unused_result));

/*
 * Applies what is missing in one transaction, writing a line for each step to `out`; several at once wait for each
 * other. Blocks. Faults: session_query's; "SCHEMA" for a schema that is newer than this binary, or not denpyo's.
 */
bool migrate_run(struct session *session, const struct sql_names *names, FILE *out, struct fault *f)
    __attribute__((warn_unused_result));

/*
 * Creates the roles that are missing and grants what each may do, in one transaction. Blocks. Faults: session_query's,
 * of which "42501" means that somebody with more rights has to run roles.sql.
 */
bool migrate_roles(struct session *session, const struct sql_names *names, struct fault *f)
    __attribute__((warn_unused_result));

/* Writes all of it as one psql script that skips what is there. Touches no server. */
void migrate_print(FILE *out, const struct sql_names *names);

#endif
