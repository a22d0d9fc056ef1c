/* cli_decide.c: `denpyo retry` and `denpyo skip`: what a person decides about a message that is in trouble. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/cli.h"
#include "denpyo/session.h"
#include "denpyo/sql.h"

static const char no_id[] = "a decision is about one message: give its message id, like "
                            "0198abcd-ef00-7fff-8009-9aa910325476";

/* Runs the statement of one decision; says what the message was, and what happens now. */
static int decide(const struct config *c, const char *path, int count, const char *const *parameters, const char *now) {
    struct fault f = {0};
    struct session *session = NULL;
    struct session_result *result = NULL;
    char *sql = sql_text(path, &(struct sql_names){.schema = c->schema});
    bool good = session_open(&session, c, &f);
    if (good) {
        char remedy[400];
        snprintf(remedy, sizeof remedy, "decide as a member of the role \"%s\", or be granted EXECUTE on the function",
                 c->role_relay);
        session_set_remedy(session, remedy);
        good = session_query(session, sql, count, parameters, &result, &f);
    }
    if (good)
        printf("Message %s was %s: %s.\n", parameters[0], session_text(result, 0, 0), now);
    session_result_free(result);
    session_close(session);
    free(sql);
    return good ? CLI_OK : cli_fail(&f);
}

int cli_decide_retry(int argc, char **argv) {
    struct config c;
    struct fault f = {0};
    const char *id;
    if (!cli_configure(&c, argc, argv, 1, &id, &f))
        return cli_fail(&f);
    int code;
    if (id != NULL) {
        code = decide(&c, "queries/decide_retry.sql", 1, &id, "it is tried again now");
    } else {
        fault_set(&f, FAULT_USAGE, "MESSAGE_ID", "%s", no_id);
        code = cli_fail(&f);
    }
    config_free(&c);
    return code;
}

/* Removes `flag VALUE` or `flag=VALUE` from argv; NULL when it is not there. */
static const char *take_value(int *argc, char **argv, const char *flag) {
    const char *value = NULL;
    int kept = 0;
    size_t size = strlen(flag);
    for (int i = 0; i < *argc; i++) {
        if (strcmp(argv[i], flag) == 0 && i + 1 < *argc)
            value = argv[++i];
        else if (strncmp(argv[i], flag, size) == 0 && argv[i][size] == '=')
            value = argv[i] + size + 1;
        else
            argv[kept++] = argv[i];
    }
    *argc = kept;
    return value;
}

int cli_decide_skip(int argc, char **argv) {
    struct config c;
    struct fault f = {0};
    const char *words[2];
    words[1] = take_value(&argc, argv, "--reason");
    if (!cli_configure(&c, argc, argv, 1, words, &f))
        return cli_fail(&f);
    int code;
    if (words[0] != NULL && words[1] != NULL) {
        code = decide(&c, "queries/decide_skip.sql", 2, words, "it is never sent, and what waited for it goes on");
    } else {
        fault_set(&f, FAULT_USAGE, "MESSAGE_ID", "%s",
                  words[0] == NULL ? no_id : "a message is skipped for a reason: give it with --reason TEXT");
        code = cli_fail(&f);
    }
    config_free(&c);
    return code;
}
