/* cli_access.c: puts what the user lacks, and the statements that give it, into one sentence. */
#include "denpyo/cli_access.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/session.h"
#include "denpyo/sql.h"

/* A list in words; what does not fit is left out, and said to be. */
struct list {
    char text[460]; /* of the 600 of a fault */
};

static void add(struct list *list, const char *word) {
    static const char more[] = "; …";
    size_t used = strlen(list->text);
    if (used > 3 && strcmp(list->text + used - 3, "…") == 0)
        return;
    bool fits = used + strlen(word) + sizeof more + 2 < sizeof list->text;
    snprintf(list->text + used, sizeof list->text - used, "%s%s", used > 0 && fits ? "; " : "", fits ? word : more);
}

static void judge(const struct session_result *rows, const char *user, bool *can_wait, struct fault *f) {
    enum { LACKING, REMEDY, IS_HIDDEN };
    struct list lacking = {""}, grants = {""}, switches = {""};
    bool hides = false;
    for (int i = 0; i < session_rows(rows); i++) {
        if (*session_text(rows, i, IS_HIDDEN) == 't') {
            hides = true;
            add(&switches, session_text(rows, i, REMEDY));
        } else {
            *can_wait = *can_wait || strstr(session_text(rows, i, LACKING), " on relay") != NULL;
            add(&lacking, session_text(rows, i, LACKING));
            if (strstr(grants.text, session_text(rows, i, REMEDY)) == NULL) /* one grant may be for all */
                add(&grants, session_text(rows, i, REMEDY));
        }
    }
    *can_wait = *can_wait && !hides;
    if (hides)
        fault_set(f, FAULT_FATAL, "42501",
                  "row-level security hides rows from user \"%s\", and a relay must see them all: %s; or alter role "
                  "\"%s\" bypassrls",
                  user, switches.text, user);
    else if (*lacking.text)
        fault_set(f, FAULT_FATAL, "42501", "user \"%s\" cannot run a relay: %s; it lacks %s", user, grants.text,
                  lacking.text);
}

bool cli_access_check(struct session *session, const struct config *config, bool *can_wait, struct fault *f) {
    char *sql = sql_text("queries/check_access.sql",
                         &(struct sql_names){.schema = config->schema, .relay = config->role_relay});
    struct session_result *rows = NULL, *user = NULL;
    *can_wait = false;
    bool asked = session_query(session, sql, 0, NULL, &rows, f) &&
                 session_query(session, "select current_user", 0, NULL, &user, f);
    if (asked)
        judge(rows, session_text(user, 0, 0), can_wait, f);
    bool is_good = asked && session_rows(rows) == 0;
    session_result_free(rows);
    session_result_free(user);
    free(sql);
    return is_good;
}
