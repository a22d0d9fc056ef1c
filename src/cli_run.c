/* cli_run.c: denpyo run: checks what can be checked at once, then runs the relay until a signal. */
#include <stdlib.h>

#include "denpyo/cli.h"
#include "denpyo/cli_access.h"
#include "denpyo/log.h"
#include "denpyo/migrate.h"
#include "denpyo/relay.h"
#include "denpyo/session.h"
#include "denpyo/sql.h"

/* A second name would send every message once more. */
static bool check_name(struct session *session, const struct config *c, struct fault *f) {
    char *sql = sql_text("queries/run_other_relay.sql", &(struct sql_names){.schema = c->schema});
    const char *const parameters[] = {c->relay};
    struct session_result *others = NULL;
    bool is_good = session_query(session, sql, 1, parameters, &others, f);
    if (is_good && session_rows(others) > 0)
        is_good =
            fault_set(f, FAULT_USAGE, "relay",
                      "this outbox is relayed under the name \"%s\": a second one, \"%s\", would send every message "
                      "once more; use --relay %s (processes of one name elect one leader)",
                      session_text(others, 0, 0), c->relay, session_text(others, 0, 0));
    session_result_free(others);
    free(sql);
    return is_good;
}

/* Who may not lead waits for its grant; with rows hidden, or a part of the privileges, a relay would begin and stall.
 */
static bool check_access(struct session *session, const struct config *c, struct fault *f) {
    bool can_wait;
    struct fault lacking = {0};
    if (cli_access_check(session, c, &can_wait, &lacking) || can_wait)
        return true;
    *f = lacking;
    return false;
}

static bool check_and_run(const struct config *c, struct fault *f) {
    if (c->brokers[0] == 0)
        return fault_set(f, FAULT_USAGE, "brokers",
                         "no brokers given: use --brokers HOST:PORT,…, DENPYO_BROKERS or \"brokers\" in the file");
    if (c->delivery == CONFIG_EXACTLY_ONCE && c->transactional_id[0] == 0)
        return fault_set(
            f, FAULT_USAGE, "transactional_id",
            "exactly_once needs --transactional-id NAME: a name that no other outbox on this Kafka cluster "
            "uses, the same for all processes of this relay");
    if (c->delivery != CONFIG_EXACTLY_ONCE && c->transactional_id[0] != 0)
        return fault_set(f, FAULT_USAGE, "transactional_id",
                         "--transactional-id means nothing to at_least_once delivery: add --delivery exactly_once, or "
                         "leave it out");
    struct session *session;
    if (!session_open(&session, c, f))
        return false;
    session_set_remedy_role(session, c->role_relay);
    bool is_good = migrate_check(session, &(struct sql_names){.schema = c->schema}, f) && check_access(session, c, f) &&
                   check_name(session, c, f);
    session_close(session);
    return is_good && relay_run(c, f);
}

int cli_run(int argc, char **argv) {
    struct config config;
    struct fault f = {0};
    if (!cli_configure(&config, argc, argv, 0, NULL, &f))
        return cli_fail(&f);
    log_setup(config.log_format, config.log_level);
    int code = check_and_run(&config, &f) ? CLI_OK : cli_fail(&f);
    config_free(&config);
    return code;
}
