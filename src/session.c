/* session.c: wraps libpq's blocking calls and turns its errors into faults that say what to do. */
#include "denpyo/session.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/nearest.h"

#define OLDEST_SERVER 130000

struct session {
    PGconn *connection;
    char *schema; /* for the texts of faults */
    char *remedy; /* what to do about a missing privilege */
};

/* The public type is libpq's result under another name: no wrapper needs an allocation of its own. */
static const PGresult *libpq(const struct session_result *result) {
    return (const PGresult *)result;
}

static char *copy(const char *text) {
    char *out = strdup(text);
    if (out == NULL)
        abort();
    return out;
}

/* Whether the quoted word is a keyword to show: a slip of a known one, or no password is there that it may be of. One
 * with a quote in it is neither. */
static bool quotes_keyword(const char *line, const char *conninfo) {
    static const char *const starts[] = {"invalid connection option \"", "invalid URI query parameter: \""};
    char word[64] = "";
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (strncmp(line, starts[i], strlen(starts[i])) == 0)
            snprintf(word, sizeof word, "%.*s", (int)strcspn(line + strlen(starts[i]), "\""), line + strlen(starts[i]));
    const char *first = strchr(line, '"'), *last = strrchr(line, '"');
    if (*word == 0 || last != first + 1 + strlen(word))
        return false;
    PQconninfoOption *options = PQconndefaults();
    const char *known[64];
    size_t count = 0;
    for (const PQconninfoOption *at = options; at && at->keyword && count < sizeof known / sizeof *known; at++)
        known[count++] = at->keyword;
    bool is_slip = nearest_word(word, known, count) != NULL;
    PQconninfoFree(options);
    return is_slip || (strstr(conninfo, "pass") == NULL && strchr(conninfo, '@') == NULL);
}

/* What else libpq quotes of a malformed conninfo may be a piece of a password with a space, or a quote, in it: all from
 * the first quoted word to the last is left out. libpq's own "=" is none. */
static void conceal_quoted(char *message) {
    char *open = strchr(message, '"');
    if (open != NULL && strncmp(open, "\"=\"", 3) == 0)
        open = strchr(open + 3, '"');
    char *close = strrchr(message, '"');
    if (open != NULL && close > open)
        memset(open + 1, '*', (size_t)(close - open - 1));
}

static bool check_conninfo(const struct config *config, struct fault *f) {
    char *message = NULL;
    PQconninfoOption *options = PQconninfoParse(config->postgres, &message);
    if (options != NULL) {
        PQconninfoFree(options);
        return true;
    }
    char line[300];
    if (message != NULL && !quotes_keyword(message, config->postgres))
        conceal_quoted(message);
    fault_one_line(line, sizeof line, message ? message : "out of memory");
    PQfreemem(message);
    return fault_set(f, FAULT_USAGE, "CONNINFO", "the option postgres (from: %s) is no valid conninfo: %s",
                     config_origin(config, "postgres"), line);
}

static PGconn *connect_to(const char *conninfo) {
    /* What stands before dbname, which is expanded, is a default that the conninfo may override. */
    const char *const names[] = {"connect_timeout", "application_name", "dbname", "client_encoding", NULL};
    const char *const values[] = {"10", "denpyo", conninfo, "UTF8", NULL};
    PGconn *connection = PQconnectdbParams(names, values, 1);
    if (connection == NULL)
        abort();
    return connection;
}

static void ignore_notice(void *context, const char *message) {
    (void)context;
    (void)message;
}

bool session_open(struct session **out, const struct config *config, struct fault *f) {
    *out = NULL;
    if (*config->postgres && !check_conninfo(config, f))
        return false;
    PGconn *connection = connect_to(config->postgres);
    if (PQstatus(connection) != CONNECTION_OK) {
        char line[450];
        fault_one_line(line, sizeof line, PQerrorMessage(connection));
        PQfinish(connection);
        return fault_set(f, FAULT_RETRY, "CONNECT", "PostgreSQL: %s (option postgres, from: %s)", line,
                         config_origin(config, "postgres"));
    }
    int version = PQserverVersion(connection);
    if (version < OLDEST_SERVER) {
        PQfinish(connection);
        return fault_set(f, FAULT_FATAL, "VERSION", "this server is PostgreSQL %d; denpyo needs 13 or newer",
                         version / 10000);
    }
    PQsetNoticeProcessor(connection, ignore_notice, NULL);
    const char *encoding = PQparameterStatus(connection, "server_encoding");
    if (encoding != NULL && strcmp(encoding, "SQL_ASCII") == 0)
        PQsetClientEncoding(connection, "SQL_ASCII"); /* any bytes may be there: as UTF-8 a row with one stray byte
                                                         could not be read at all */
    struct session *session = malloc(sizeof *session);
    if (session == NULL)
        abort();
    *session = (struct session){.connection = connection, .schema = copy(config->schema)};
    char remedy[300];
    snprintf(remedy, sizeof remedy, "GRANT \"%s\" TO \"%s\" opens the views (for the relay's own tables it is \"%s\")",
             config->role_reader, PQuser(connection), config->role_relay);
    session->remedy = copy(remedy);
    *out = session;
    return true;
}

void session_close(struct session *session) {
    if (session == NULL)
        return;
    PQfinish(session->connection);
    free(session->schema);
    free(session->remedy);
    free(session);
}

void session_set_remedy(struct session *session, const char *remedy) {
    free(session->remedy);
    session->remedy = copy(remedy);
}

void session_set_remedy_role(struct session *session, const char *role) {
    char remedy[300];
    snprintf(remedy, sizeof remedy, "GRANT \"%s\" TO \"%s\" gives this user what is needed", role,
             PQuser(session->connection));
    session_set_remedy(session, remedy);
}

static bool is_one_of(const char *state, const char *const *states) {
    for (; *states; states++)
        if (strcmp(state, *states) == 0)
            return true;
    return false;
}

/* Sets *f from a failed result. */
static bool refuse(const struct session *session, const PGresult *result, struct fault *f) {
    /* undefined_table, invalid_schema_name, undefined_function, undefined_column */
    static const char *const absent[] = {"42P01", "3F000", "42883", "42703", NULL};
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *primary = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    char line[400];
    fault_one_line(line, sizeof line, primary ? primary : PQerrorMessage(session->connection));
    if (state == NULL)
        return fault_set(f, FAULT_RETRY, "CONNECT", "PostgreSQL: %s", line);
    if (is_one_of(state, absent))
        return fault_set(f, FAULT_FATAL, state,
                         "PostgreSQL: %s; is the schema \"%s\" there and up to date? Run \"denpyo init\"", line,
                         session->schema);
    if (strcmp(state, "42501") == 0) /* insufficient_privilege */
        return fault_set(f, FAULT_FATAL, state, "PostgreSQL: %s; %s", line, session->remedy);
    if (strcmp(state, "55P03") == 0) /* lock_not_available */
        return fault_set(
            f, FAULT_RETRY, state,
            "PostgreSQL: %s; another session's transaction is in the way (pg_stat_activity shows those that "
            "are open long): try again when it has ended",
            line);
    if (strcmp(state, "P0001") == 0) /* raise_exception: what a function of the outbox says is denpyo's own word */
        return fault_set(f, FAULT_FATAL, state, "%s", line);
    /* Connection, resources, operator intervention, and conflicts between transactions pass; the rest does not. */
    bool passes = strncmp(state, "08", 2) == 0 || strncmp(state, "53", 2) == 0 || strncmp(state, "57", 2) == 0 ||
                  strncmp(state, "40", 2) == 0;
    return fault_set(f, passes ? FAULT_RETRY : FAULT_FATAL, state, "PostgreSQL: %s", line);
}

static bool finish(const struct session *session, PGresult *result, struct session_result **out, struct fault *f) {
    ExecStatusType status = PQresultStatus(result);
    bool good = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK || status == PGRES_EMPTY_QUERY;
    if (!good)
        refuse(session, result, f);
    if (good && out != NULL)
        *out = (struct session_result *)result;
    else
        PQclear(result);
    return good;
}

bool session_query(struct session *session, const char *sql, int count, const char *const *parameters,
                   struct session_result **out, struct fault *f) {
    PGresult *result = PQexecParams(session->connection, sql, count, NULL, parameters, NULL, NULL, 0);
    return finish(session, result, out, f);
}

bool session_run(struct session *session, const char *script, struct fault *f) {
    return finish(session, PQexec(session->connection, script), NULL, f);
}

int session_server_version(const struct session *session) {
    return PQserverVersion(session->connection);
}

int session_backend_pid(const struct session *session) {
    return PQbackendPID(session->connection);
}

int session_rows(const struct session_result *result) {
    return PQntuples(libpq(result));
}

const char *session_text(const struct session_result *result, int row, int column) {
    return PQgetvalue(libpq(result), row, column);
}

bool session_is_null(const struct session_result *result, int row, int column) {
    return PQgetisnull(libpq(result), row, column) == 1;
}

void session_result_free(struct session_result *result) {
    PQclear((PGresult *)result);
}
