/* cli_init.c: `denpyo init`: the schema and its roles, made or brought up to date, or printed for a DBA. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/cli.h"
#include "denpyo/migrate.h"
#include "denpyo/session.h"
#include "denpyo/sql.h"

/* The roles may be somebody else's to make: then their SQL is printed, and that is no failure of ours. */
static bool init_roles(struct session *session, const struct sql_names *names, struct fault *f) {
    if (migrate_roles(session, names, f)) {
        printf("roles \"%s\", \"%s\", \"%s\": in place, with their grants\n", names->writer, names->relay,
               names->reader);
        return true;
    }
    if (strcmp(f->code, "42501") != 0)
        return false;
    printf("roles: this user may not make or grant them; somebody who may should run this:\n\n");
    char *script = sql_text("roles.sql", names);
    fputs(script, stdout);
    free(script);
    return true;
}

int cli_init(int argc, char **argv) {
    bool print = cli_take_flag(&argc, argv, "--print");
    struct config config;
    struct fault f = {0};
    if (!cli_configure(&config, argc, argv, 0, NULL, &f))
        return cli_fail(&f);
    struct sql_names names = {.schema = config.schema,
                              .writer = config.role_writer,
                              .relay = config.role_relay,
                              .reader = config.role_reader};
    struct session *session = NULL;
    bool good = true;
    if (print)
        migrate_print(stdout, &names);
    else
        good = session_open(&session, &config, &f) && migrate_run(session, &names, stdout, &f) &&
               init_roles(session, &names, &f);
    session_close(session);
    config_free(&config);
    return good ? CLI_OK : cli_fail(&f);
}
