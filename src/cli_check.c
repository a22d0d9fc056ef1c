/* cli_check.c: `denpyo check`: would a relay work here? One line a question, with what to do about a bad answer. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "denpyo/cli.h"
#include "denpyo/cli_access.h"
#include "denpyo/cli_sweep.h"
#include "denpyo/cli_view.h"
#include "denpyo/kafka_admin.h"
#include "denpyo/kafka_consumer.h"
#include "denpyo/kafka_mark.h"
#include "denpyo/migrate.h"
#include "denpyo/session.h"

#define BROKER_TIMEOUT_MS 5000
#define SKEW_WARN_S 1.0 /* the lease counts in seconds; a look-up by time after a crash subtracts the skew */

enum result { OK, WARN, FAIL, SKIP };
static const char *const result_names[] = {[OK] = "OK", [WARN] = "WARN", [FAIL] = "FAIL", [SKIP] = "SKIP"};

/* What the checks know of each other; what is NULL or false could not be found out. */
struct check {
    const struct config *config;
    struct cli_view view;
    json_t *server;     /* the row of check_server.sql */
    double clock_error; /* seconds: the server's clock minus ours */
    double clock_doubt; /* seconds the answer travelled */
    bool schema_ready;
    json_t *topics; /* names seen in the outbox */
    bool broker_reached;
    struct kafka_admin_topic *found;
    size_t found_count;
    json_t *lines; /* all that was said */
    bool json, sweep;
    int exit_code; /* of the first failure */
};

/* Says one line; a failure decides the exit code unless an earlier one did. */
__attribute__((format(printf, 5, 6))) static void say(struct check *c, const char *name, enum result result, int code,
                                                      const char *format, ...) {
    char text[900];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (result == FAIL && c->exit_code == CLI_OK)
        c->exit_code = code;
    json_array_append_new(c->lines,
                          json_pack("{s:s, s:s, s:s}", "check", name, "result", result_names[result], "text", text));
    if (c->json)
        return;
    printf("%-5s %-11s ", result_names[result], name);
    cli_view_put(text);
    putchar('\n');
    fflush(stdout);
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void check_connection(struct check *c, const char *name) {
    struct fault f = {0};
    json_t *warm =
        cli_view_query(&c->view, "queries/check_server.sql", NULL, &f); /* connects, so that the next is fast */
    double before = now_s();
    json_t *rows = warm ? cli_view_query(&c->view, "queries/check_server.sql", NULL, &f) : NULL;
    double after = now_s();
    json_decref(warm);
    if (rows == NULL) {
        say(c, name, FAIL, cli_exit_code(&f), "%s", f.text);
        return;
    }
    c->server = json_incref(json_array_get(rows, 0));
    json_decref(rows);
    c->clock_doubt = after - before;
    c->clock_error = json_number_value(json_object_get(c->server, "clock")) - (before + after) / 2;
    say(c, name, OK, CLI_OK, "database \"%s\" as user \"%s\"", cli_view_text(c->server, "database"),
        cli_view_text(c->server, "user"));
}

static void check_server(struct check *c, const char *name) {
    const char *version = cli_view_text(c->server, "version");
    if (json_is_true(json_object_get(c->server, "in_recovery")))
        say(c, name, FAIL, CLI_DATABASE,
            "PostgreSQL %s is in recovery (a standby): connect to the primary; a list of hosts with "
            "target_session_attrs=read-write finds it",
            version);
    else
        say(c, name, OK, CLI_OK, "PostgreSQL %s, read-write", version);
}

static void check_pooling(struct check *c, const char *name) {
    struct fault f = {0};
    if (!cli_view_transaction(&c->view, &f)) {
        bool by_statement = strstr(f.text, "statement pooling") != NULL; /* PgBouncer's words */
        say(c, name, FAIL, CLI_DATABASE, "transactions of several statements do not work: %s",
            by_statement ? "the pooler is in statement mode; set its pool_mode to transaction" : f.text);
        cli_view_close(&c->view); /* the pooler has closed it, too */
    } else if (session_backend_pid(c->view.session) == json_integer_value(json_object_get(c->server, "backend_pid")))
        say(c, name, OK, CLI_OK, "connected to the server itself");
    else if (c->config->prepare)
        say(c, name, WARN, CLI_OK,
            "connected through a pooler; named prepared statements need PgBouncer 1.21 or newer with "
            "max_prepared_statements above 0 (or session mode); with others use --no-prepare");
    else
        say(c, name, OK, CLI_OK, "connected through a pooler, transactions work, prepared statements are off");
}

static void check_clock(struct check *c, const char *name) {
    double skew = fabs(c->clock_error) - c->clock_doubt / 2;
    if (skew > SKEW_WARN_S)
        say(c, name, WARN, CLI_OK,
            "this machine and the database disagree by %.1f s: let both follow the same time server (NTP)",
            fabs(c->clock_error));
    else
        say(c, name, OK, CLI_OK, "this machine and the database agree within %.0f ms",
            ceil((fabs(c->clock_error) + c->clock_doubt / 2) * 1000));
}

static void check_schema(struct check *c, const char *name) {
    struct fault f = {0};
    c->schema_ready = cli_view_schema(&c->view, &f);
    if (c->schema_ready)
        say(c, name, OK, CLI_OK, "\"%s\" has version %d, as this denpyo needs", c->config->schema, migrate_latest());
    else
        say(c, name, FAIL, cli_exit_code(&f), "%s", f.text);
}

static void check_privileges(struct check *c, const char *name) {
    struct fault f = {0};
    bool can_wait;
    if (cli_access_check(c->view.session, c->config, &can_wait, &f))
        say(c, name, OK, CLI_OK, "user \"%s\" sees every row and has what a relay needs",
            cli_view_text(c->server, "user"));
    else
        say(c, name, FAIL, cli_exit_code(&f), "%s", f.text);
}

/* The topics that the outbox has seen, as far as one may look; without them the broker can still be asked. */
static void find_topics(struct check *c) {
    struct fault f = {0};
    if (c->schema_ready)
        c->topics = cli_view_query(&c->view, "queries/check_topics.sql", NULL, &f);
    c->found_count = json_array_size(c->topics);
    c->found = calloc(c->found_count + 1, sizeof *c->found);
    if (c->found == NULL)
        abort();
    for (size_t i = 0; i < c->found_count; i++)
        c->found[i].name = cli_view_text(json_array_get(c->topics, i), "topic");
}

/* Other brokers than those that have the messages so far: the relay refuses them. */
static void judge_cluster(struct check *c, const char *name, const struct kafka_admin_cluster *cluster) {
    struct fault f = {0};
    json_t *rows = c->schema_ready ? cli_view_query(&c->view, "queries/check_cluster.sql", c->config->relay, &f) : NULL;
    const char *before = cli_view_text(json_array_get(rows, 0), "cluster_id");
    if (*before && *cluster->id && strcmp(before, cluster->id) != 0)
        say(c, name, FAIL, CLI_TROUBLE,
            "cluster %s, but this outbox was sent to cluster %s: mend --brokers, or confirm with denpyo run "
            "--accept-cluster-id %s",
            cluster->id, before, cluster->id);
    else
        say(c, name, OK, CLI_OK, "cluster %s with %d broker%s", *cluster->id ? cluster->id : "(without id)",
            cluster->brokers, cluster->brokers == 1 ? "" : "s");
    json_decref(rows);
}

static struct kafka_options list_options(const struct check *c, struct kafka_property *properties) {
    for (size_t i = 0; i < c->config->kafka_count; i++)
        properties[i] = (struct kafka_property){c->config->kafka[i].name, c->config->kafka[i].value};
    return (struct kafka_options){
        .brokers = c->config->brokers, .properties = properties, .property_count = c->config->kafka_count};
}

static void check_broker(struct check *c, const char *name) {
    find_topics(c);
    if (*c->config->brokers == 0) {
        say(c, name, FAIL, CLI_USAGE,
            "no brokers given: use --brokers HOST:PORT,…, DENPYO_BROKERS or \"brokers\" in the file");
        return;
    }
    struct kafka_property properties[c->config->kafka_count + 1];
    const struct kafka_options options = list_options(c, properties);
    struct kafka_admin_cluster cluster;
    struct fault f = {0};
    c->broker_reached =
        kafka_check(&options, &f) && kafka_admin_look(c->config->brokers, properties, c->config->kafka_count,
                                                      BROKER_TIMEOUT_MS, c->found, c->found_count, &cluster, &f);
    if (c->broker_reached)
        judge_cluster(c, name, &cluster);
    else
        say(c, name, FAIL, cli_exit_code(&f), "%s%s", f.text,
            f.class == FAULT_RETRY ? "; check --brokers, the network, and kafka.security.protocol" : "");
}

static void check_topics(struct check *c, const char *name) {
    if (c->topics == NULL) {
        say(c, name, SKIP, CLI_OK, "needs the outbox");
        return;
    }
    if (c->found_count == 0)
        say(c, name, OK, CLI_OK, "the outbox has seen no topic yet");
    for (size_t i = 0; i < c->found_count; i++) {
        const struct kafka_admin_topic *topic = &c->found[i];
        if (*topic->error)
            say(c, name, FAIL, CLI_TROUBLE, "%s: %s", topic->name, topic->error);
        else if (topic->partitions == 0)
            say(c, name, FAIL, CLI_TROUBLE,
                "%s is not on the brokers, or may not be seen by this user: create it, or grant Describe and Write on "
                "it",
                topic->name);
        else
            say(c, name, OK, CLI_OK, "%s has %d partition%s", topic->name, topic->partitions,
                topic->partitions == 1 ? "" : "s");
    }
}

/* What transactions need on a cluster with access control. The right to the transactional id itself shows when the
 * relay starts: asking for it would fence off the one that runs. */
static void check_exactly_once(struct check *c, const char *name) {
    struct kafka_property properties[c->config->kafka_count + 1];
    struct kafka_options options = list_options(c, properties);
    struct fault f = {0};
    if (*c->config->transactional_id == 0) {
        say(c, name, FAIL, CLI_USAGE, "exactly_once needs --transactional-id NAME");
        return;
    }
    options.transactional_id = c->config->transactional_id;
    if (!kafka_mark_check(&options, BROKER_TIMEOUT_MS, &f)) {
        say(c, name, FAIL, CLI_TROUBLE, "%s", f.text);
        return;
    }
    struct rd_kafka_s *consumer = kafka_consumer_open(&options, NULL, true, &f);
    size_t unread = 0;
    for (size_t i = 0; consumer != NULL && i < c->found_count; i++) {
        const struct kafka_admin_topic *topic = &c->found[i];
        if (topic->partitions == 0 || kafka_consumer_may_read(consumer, topic->name, BROKER_TIMEOUT_MS))
            continue;
        say(c, name, WARN, CLI_OK,
            "%s may not be read: after a crash its messages may be sent twice; grant the relay Read on it",
            topic->name);
        unread++;
    }
    if (consumer != NULL)
        kafka_consumer_close(consumer);
    if (unread == 0)
        say(c, name, OK, CLI_OK, "the group \"%s\" keeps the progress of transactions", c->config->transactional_id);
}

/* The whole outbox, only when it is asked for. */
static void check_sweep(struct check *c, const char *name) {
    struct sweep_answer answer;
    struct fault f = {0};
    if (!cli_sweep_run(c->view.session, c->config, &answer, &f))
        say(c, name, FAIL, cli_exit_code(&f), "%s", f.text);
    else if (answer.found > 0)
        say(c, name, FAIL, CLI_TROUBLE,
            "%lld of %lld messages were settled without a receipt (the lowest id is %lld): they are parked, and the "
            "relay \"%s\" sends them when it runs",
            (long long)answer.found, (long long)answer.seen, (long long)answer.first_found_id, c->config->relay);
    else
        say(c, name, OK, CLI_OK, "%lld messages: what is settled has a receipt or a reason", (long long)answer.seen);
}

/* In this order; a check is skipped when what it stands on is missing. */
enum needs { NEEDS_NOTHING, NEEDS_SERVER, NEEDS_SCHEMA, NEEDS_BROKER };
static const struct {
    const char *name;
    enum needs needs;
    void (*run)(struct check *c, const char *name);
} checks[] = {
    {"connection", NEEDS_NOTHING, check_connection},
    {"server", NEEDS_SERVER, check_server},
    {"pooling", NEEDS_SERVER, check_pooling},
    {"clock", NEEDS_SERVER, check_clock},
    {"schema", NEEDS_SERVER, check_schema},
    {"privileges", NEEDS_SCHEMA, check_privileges},
    {"sweep", NEEDS_SCHEMA, check_sweep},
    {"broker", NEEDS_NOTHING, check_broker},
    {"topics", NEEDS_BROKER, check_topics},
    {"delivery", NEEDS_BROKER, check_exactly_once},
};

/* What is missing for the check, or NULL. */
static const char *missing(const struct check *c, enum needs needs) {
    switch (needs) {
    case NEEDS_NOTHING:
        return NULL;
    case NEEDS_SERVER:
        return c->server ? NULL : "needs the connection";
    case NEEDS_SCHEMA:
        return c->schema_ready ? NULL : "needs the schema";
    case NEEDS_BROKER:
        return c->broker_reached ? NULL : "needs the broker";
    }
    return NULL;
}

static void run_all(struct check *c) {
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if ((checks[i].run == check_sweep && !c->sweep) ||
            (checks[i].run == check_exactly_once && c->config->delivery != CONFIG_EXACTLY_ONCE))
            continue;
        const char *lacking = missing(c, checks[i].needs);
        if (lacking)
            say(c, checks[i].name, SKIP, CLI_OK, "%s", lacking);
        else
            checks[i].run(c, checks[i].name);
    }
}

int cli_check(int argc, char **argv) {
    struct check c = {.json = cli_take_flag(&argc, argv, "--json"),
                      .sweep = cli_take_flag(&argc, argv, "--sweep"),
                      .lines = json_array()};
    struct config config;
    struct fault f = {0};
    if (!cli_configure(&config, argc, argv, 0, NULL, &f)) {
        json_decref(c.lines);
        return cli_fail(&f);
    }
    c.config = c.view.config = &config;
    c.view.role = config.role_relay;
    run_all(&c);
    if (c.json) {
        cli_view_print(c.lines, false);
        putchar('\n');
    }
    free(c.found);
    json_decref(c.topics);
    json_decref(c.server);
    json_decref(c.lines);
    cli_view_close(&c.view);
    config_free(&config);
    return c.exit_code;
}
