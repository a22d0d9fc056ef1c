/* cli_view.c: asks the database for rows of JSON, and writes ages and foreign text as people can read them. */
#include "denpyo/cli_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/cli.h"
#include "denpyo/migrate.h"
#include "denpyo/session.h"
#include "denpyo/sql.h"
#include "denpyo/utf8.h"

static struct sql_names names_of(const struct config *c) {
    return (struct sql_names){
        .schema = c->schema, .writer = c->role_writer, .relay = c->role_relay, .reader = c->role_reader};
}

static bool connected(struct cli_view *view, struct fault *f) {
    if (view->session)
        return true;
    if (!session_open(&view->session, view->config, f))
        return false;
    if (view->role)
        session_set_remedy_role(view->session, view->role);
    return true;
}

/* PostgreSQL wrote it as JSON; out of a SQL_ASCII database it may hold bytes that are no UTF-8. */
static json_t *parse(const char *text) {
    json_t *row = json_loads(text, 0, NULL);
    if (row == NULL) {
        size_t size = strlen(text) + 1;
        char *clean = malloc(size);
        if (clean == NULL)
            abort();
        utf8_clean(clean, size, text);
        row = json_loads(clean, 0, NULL);
        free(clean);
    }
    if (row == NULL)
        abort();
    return row;
}

static json_t *parsed(const struct session_result *result) {
    json_t *rows = json_array();
    for (int i = 0; i < session_rows(result); i++) {
        json_t *row = parse(session_text(result, i, 0));
        json_array_append_new(rows, row);
    }
    return rows;
}

json_t *cli_view_query(struct cli_view *view, const char *path, const char *parameter, struct fault *f) {
    if (!connected(view, f))
        return NULL;
    struct sql_names names = names_of(view->config);
    char *sql = sql_text(path, &names);
    struct session_result *result;
    json_t *rows = NULL;
    if (session_query(view->session, sql, parameter ? 1 : 0, &parameter, &result, f)) {
        rows = parsed(result);
        session_result_free(result);
    } else if (cli_exit_code(f) == CLI_SCHEMA) {
        (void)!cli_view_schema(view, f); /* it can tell whether the schema is missing, old or foreign */
    }
    free(sql);
    return rows;
}

bool cli_view_schema(struct cli_view *view, struct fault *f) {
    struct sql_names names = names_of(view->config);
    return connected(view, f) && migrate_check(view->session, &names, f);
}

bool cli_view_transaction(struct cli_view *view, struct fault *f) {
    return connected(view, f) && session_run(view->session, "begin", f) && session_run(view->session, "select 1", f) &&
           session_run(view->session, "commit", f);
}

bool cli_view_has_leader(const json_t *relays) {
    size_t i;
    const json_t *relay;
    json_array_foreach(relays, i, relay) if (json_is_true(json_object_get(relay, "has_lease"))) return true;
    return false;
}

void cli_view_close(struct cli_view *view) {
    session_close(view->session);
    view->session = NULL;
}

const char *cli_view_text(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

void cli_view_age(const json_t *seconds, char out[CLI_VIEW_AGE_SIZE]) {
    static const struct {
        double below, unit;
        const char *name;
        int decimals;
    } ages[] = {{10, 1, "s", 1}, {120, 1, "s", 0}, {7200, 60, "min", 0}, {172800, 3600, "h", 0}, {1e12, 86400, "d", 0}};
    double age = json_number_value(seconds);
    snprintf(out, CLI_VIEW_AGE_SIZE, "-");
    for (size_t i = 0; json_is_number(seconds) && i < sizeof ages / sizeof *ages; i++)
        if (age < ages[i].below) {
            snprintf(out, CLI_VIEW_AGE_SIZE, "%.*f %s", ages[i].decimals, age / ages[i].unit, ages[i].name);
            return;
        }
}

void cli_view_print(const json_t *value, bool compact) {
    json_dumpf(value, stdout, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15) | (compact ? JSON_COMPACT : JSON_INDENT(2)));
}

void cli_view_put(const char *text) {
    size_t size = strlen(text) + 1;
    char *shown = malloc(size);
    if (shown == NULL)
        abort();
    utf8_clean(shown, size, text);
    fputs(shown, stdout);
    free(shown);
}
