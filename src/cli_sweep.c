/* cli_sweep.c: the sweep by hand, as `denpyo check --sweep` does it: one step after the other without pauses. */
#include "denpyo/cli_sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/session.h"
#include "denpyo/sql.h"

/* One step in a transaction of its own. */
static bool step(struct session *session, const char *begin, const char *page, const char *const *parameters,
                 struct session_result **result, struct fault *f) {
    return session_run(session, begin, f) && session_query(session, page, 4, parameters, result, f) &&
           session_run(session, "commit", f);
}

static int64_t number(const struct session_result *result, int column) {
    return strtoll(session_text(result, 0, column), NULL, 10);
}

/* Whether the outbox came from another cluster and no relay has closed its past yet: windows say nothing then. */
static bool has_moved(struct session *session, const struct config *config, const struct sql_names *names,
                      struct fault *f) {
    char *look = sql_text("queries/identity_look.sql", names), *server = sql_text("queries/identity_server.sql", names);
    struct session_result *recorded = NULL, *found = NULL;
    enum { SYSTEM, IS_READABLE = 3, IS_AHEAD };
    const char *relay = config->relay;
    bool ok = session_query(session, look, 1, &relay, &recorded, f);
    bool moved = ok && session_rows(recorded) > 0 && *session_text(recorded, 0, IS_AHEAD) == 't';
    if (ok && session_rows(recorded) > 0 && *session_text(recorded, 0, IS_READABLE) == 't' &&
        !session_is_null(recorded, 0, SYSTEM)) {
        ok = session_query(session, server, 0, NULL, &found, f);
        moved = moved || (ok && strcmp(session_text(recorded, 0, SYSTEM), session_text(found, 0, 0)) != 0);
    }
    session_result_free(recorded);
    session_result_free(found);
    free(look);
    free(server);
    if (ok && moved)
        fault_set(f, FAULT_RETRY, "MOVED",
                  "this outbox came from another PostgreSQL cluster: run the relay first, which closes what is past");
    return !ok || moved;
}

bool cli_sweep_run(struct session *session, const struct config *config, struct sweep_answer *out, struct fault *f) {
    const struct sql_names names = {.schema = config->schema};
    *out = (struct sweep_answer){0};
    if (has_moved(session, config, &names, f))
        return false;
    char *begin = sql_text("queries/sweep_begin.sql", &names), *page = sql_text("queries/sweep_page.sql", &names);
    char after[24] = "0", most[24];
    snprintf(most, sizeof most, "%d", SWEEP_ROWS);
    bool ok = true;
    for (int64_t seen = SWEEP_ROWS; ok && seen == SWEEP_ROWS;) {
        const char *parameters[] = {config->relay, after, most, SWEEP_ERROR};
        struct session_result *result = NULL;
        ok = step(session, begin, page, parameters, &result, f);
        if (ok) {
            snprintf(after, sizeof after, "%s", session_text(result, 0, 0));
            seen = number(result, 1);
            out->seen += seen;
            out->found += number(result, 2);
            if (out->first_found_id == 0)
                out->first_found_id = number(result, 3);
        }
        session_result_free(result);
    }
    free(begin);
    free(page);
    return ok;
}
