/* cli_decide.c: `denpyo retry` and `denpyo skip`: what a person decides about a message that is in trouble. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/cli.h"
#include "denpyo/cli_message.h"
#include "denpyo/session.h"
#include "denpyo/sql.h"

/* Runs a statement of the outbox. */
static bool ask(struct session *session, const struct config *c, const char *path, int count,
                const char *const *parameters, struct session_result **out, struct fault *f) {
    char *sql = sql_text(path, &(struct sql_names){.schema = c->schema});
    bool good = session_query(session, sql, count, parameters, out, f);
    free(sql);
    return good;
}

/* Puts the message id in the place of a number. *found, if set, is the caller's and owns that id. */
static bool find(struct session *session, const struct config *c, const char **word, struct session_result **found,
                 struct fault *f) {
    if (!cli_message_is_number(*word))
        return true;
    if (!ask(session, c, "queries/decide_find.sql", 1, word, found, f))
        return false;
    if (session_rows(*found) == 0) {
        cli_message_missing(*word, f);
        return false;
    }
    *word = session_text(*found, 0, 0);
    return true;
}

/* Runs the statement of one decision about the message in parameters[0]; says what it was, and what happens now. */
static int decide(const struct config *c, const char *path, int count, const char **parameters, const char *now) {
    struct fault f = {0};
    struct session *session = NULL;
    struct session_result *found = NULL, *result = NULL;
    bool good = session_open(&session, c, &f);
    if (good) {
        char remedy[400];
        snprintf(remedy, sizeof remedy, "decide as a member of the role \"%s\", or be granted EXECUTE on the function",
                 c->role_relay);
        session_set_remedy(session, remedy);
        good = find(session, c, &parameters[0], &found, &f) && ask(session, c, path, count, parameters, &result, &f);
    }
    if (good)
        printf("Message %s was %s: %s.\n", parameters[0], session_text(result, 0, 0), now);
    session_result_free(result);
    session_result_free(found);
    session_close(session);
    return good ? CLI_OK : cli_fail(&f);
}

int cli_decide_retry(int argc, char **argv) {
    struct config c;
    struct fault f = {0};
    const char *id;
    if (!cli_configure(&c, argc, argv, 1, &id, &f))
        return cli_fail(&f);
    int code = cli_message_check("retry", id, &f)
                   ? decide(&c, "queries/decide_retry.sql", 1, &id, "it is tried again now")
                   : cli_fail(&f);
    config_free(&c);
    return code;
}

/* Removes `--reason TEXT` or `--reason=TEXT` from argv; *reason is NULL when it is not there. */
static bool take_reason(int *argc, char **argv, const char **reason, struct fault *f) {
    static const char flag[] = "--reason";
    const size_t size = sizeof flag - 1;
    int kept = 0;
    *reason = NULL;
    for (int i = 0; i < *argc; i++) {
        if (strncmp(argv[i], flag, size) == 0 && argv[i][size] == '=')
            *reason = argv[i] + size + 1;
        else if (strcmp(argv[i], flag) != 0)
            argv[kept++] = argv[i];
        else if (i + 1 < *argc && strncmp(argv[i + 1], "--", 2) != 0)
            *reason = argv[++i];
        else
            return fault_set(f, FAULT_USAGE, "OPTION_VALUE", "%s needs a value: %s TEXT", flag, flag);
    }
    *argc = kept;
    return true;
}

int cli_decide_skip(int argc, char **argv) {
    struct config c;
    struct fault f = {0};
    const char *words[2];
    if (!take_reason(&argc, argv, &words[1], &f) || !cli_configure(&c, argc, argv, 1, words, &f))
        return cli_fail(&f);
    bool good = cli_message_check("skip", words[0], &f);
    if (good && words[1] == NULL)
        good = fault_set(&f, FAULT_USAGE, "REASON", "a message is skipped for a reason: give it with --reason TEXT");
    int code = good
                   ? decide(&c, "queries/decide_skip.sql", 2, words, "it is never sent, and what waited for it goes on")
                   : cli_fail(&f);
    config_free(&c);
    return code;
}
