/* cli_view.h: what status, show and check share: queries whose rows are JSON objects, and how values look to a person.
 */
#ifndef DENPYO_CLI_VIEW_H
#define DENPYO_CLI_VIEW_H

#include <jansson.h>

#include "denpyo/config.h"
#include "denpyo/fault.h"

struct session;

/* A connection that is opened at the first query. Set .config and, if reading is not all, .role; the rest to zero. */
struct cli_view {
    const struct config *config;
    const char *role; /* which one a user without the privileges is told to be granted; NULL: the reader's */
    struct session *session;
};

/*
 * Runs an embedded query of one JSON column, with $1 = `parameter` unless it is NULL, and returns its rows as an array
 * that the caller releases, or NULL with the fault. Blocks. A missing schema or privilege is said in words that tell
 * what to do.
 */
json_t *cli_view_query(struct cli_view *view, const char *path, const char *parameter, struct fault *f);

/* Whether a transaction of several statements works. Blocks. */
bool cli_view_transaction(struct cli_view *view, struct fault *f);

/* Whether the schema is there, ours, and of the version that this denpyo works with. Blocks. */
bool cli_view_schema(struct cli_view *view, struct fault *f);

/* Whether any of these relays, rows of queries/status_relays.sql, has a valid lease. */
bool cli_view_has_leader(const json_t *relays);

/* Drops the connection; the next query opens a new one. */
void cli_view_close(struct cli_view *view);

/* A text of the object, "" when it is missing or null. Borrowed from the object. */
const char *cli_view_text(const json_t *object, const char *name);

#define CLI_VIEW_AGE_SIZE 32
/* A number of seconds as an age ("3.2 s", "5 min", "2 h", "4 d"), "-" for null. */
void cli_view_age(const json_t *seconds, char out[CLI_VIEW_AGE_SIZE]);

/* Prints JSON without rounding noise, on one line or indented; no line break follows. */
void cli_view_print(const json_t *value, bool compact);

/* Prints text that came from outside: control characters and stray bytes become '?', line breaks
 * spaces. */
void cli_view_put(const char *text);

#endif
