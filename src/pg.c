/* pg.c: drives libpq's pipeline mode from the loop: send, flush, read, hand each result to who asked. */
#include "denpyo/pg.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "denpyo/failpoint.h"

#define PLANS_FIRST_US 1000000 /* after so long they are old for the first time, then after twice that, … */
#define PLANS_MOST_US 60000000

/* What an answer is expected for, in the order sent. */
enum request_kind { REQUEST_QUERY, REQUEST_PREPARE, REQUEST_SYNC };
struct request {
    enum request_kind kind;
    pg_done_fn done;
    void *context;
};

/* An attempt to connect, on the worker. `owner` is NULL once nobody waits for it. */
struct attempt {
    struct worker_job job;
    struct pg *owner;
    char *conninfo, *application;
    int timeout_s;
    PGconn *connection;
};

struct pg {
    struct loop *loop;
    struct worker *worker;
    struct loop_io io;
    char *conninfo, *application;
    int timeout_s;
    bool prepare;
    enum pg_state state;
    struct fault fault;
    PGconn *connection;
    struct attempt *attempt;
    bool prepared[PG_STATEMENTS];
    struct request *requests; /* ring */
    size_t first, count, capacity;
    int64_t ready_us, planned_us; /* when it was READY first, and when plans were called old last */
    unsigned generation;          /* rises with every close: a call-back may close the connection it is called from */
};

struct pg_result {
    PGresult *libpq;
    bool *taken; /* where deliver() learns of it: whoever takes a result may free it in the same call-back */
};

static char *copy(const char *text) {
    char *out = strdup(text);
    if (out == NULL)
        abort();
    return out;
}

struct pg *pg_new(struct loop *loop, struct worker *worker, const struct pg_options *options) {
    struct pg *pg = calloc(1, sizeof *pg);
    if (pg == NULL)
        abort();
    pg->loop = loop;
    pg->worker = worker;
    pg->conninfo = copy(options->conninfo);
    pg->application = copy(options->role);
    pg->prepare = options->prepare;
    pg->timeout_s = options->connect_timeout_s;
    pg->capacity = 64;
    pg->requests = calloc(pg->capacity, sizeof *pg->requests);
    if (pg->requests == NULL)
        abort();
    return pg;
}

void pg_free(struct pg *pg) {
    if (pg == NULL)
        return;
    pg_close(pg);
    free(pg->conninfo);
    free(pg->application);
    free(pg->requests);
    free(pg);
}

/* One event stays one log line, however many lines PostgreSQL's message has. */
static void break_with(struct pg *pg, enum fault_class class, const char *code, const char *message) {
    char line[sizeof pg->fault.text];
    fault_one_line(line, sizeof line, message);
    fault_set(&pg->fault, class, code, "%s", line);
    loop_forget(pg->loop, &pg->io);
    pg->state = PG_BROKEN;
}

static void read_ready(void *context, uint32_t events);

/* libpq would print notices past the log; what matters of them comes again as an error. */
static void ignore_notice(void *context, const char *message) {
    (void)context;
    (void)message;
}

static void adopt(struct pg *pg, PGconn *connection) {
    pg->connection = connection;
    if (PQstatus(connection) != CONNECTION_OK) {
        break_with(pg, FAULT_RETRY, "connection", PQerrorMessage(connection));
    } else if (PQserverVersion(connection) < 130000) {
        break_with(pg, FAULT_FATAL, "version", "PostgreSQL 13 or newer is needed");
    } else if (PQsetnonblocking(connection, 1) != 0 || PQenterPipelineMode(connection) != 1) {
        break_with(pg, FAULT_RETRY, "connection", PQerrorMessage(connection));
    } else {
        PQsetNoticeProcessor(connection, ignore_notice, NULL);
        pg->state = PG_READY;
        pg->ready_us = pg->planned_us = loop_now_us();
        loop_watch(pg->loop, &pg->io, PQsocket(connection), EPOLLIN, read_ready, pg);
    }
}

static void attempt_run(struct worker_job *job) {
    struct attempt *a = (struct attempt *)job;
    char timeout[16];
    snprintf(timeout, sizeof timeout, "%d", a->timeout_s);
    /* Defaults come before the conninfo, which may override them; what the relay relies on comes after. */
    const char *const names[] = {"connect_timeout",     "keepalives_idle",
                                 "keepalives_interval", "keepalives_count",
                                 "tcp_user_timeout",    "target_session_attrs",
                                 "application_name",    "dbname",
                                 "client_encoding",     NULL};
    const char *const values[] = {timeout,      "10",           "3",         "3",    "10000",
                                  "read-write", a->application, a->conninfo, "UTF8", NULL};
    a->connection = PQconnectdbParams(names, values, 1);
    if (a->connection == NULL)
        abort();
    /* Such a database takes any bytes, and the server would refuse to send the page of a row whose bytes are not UTF-8.
     * A failure shows at the first statement. */
    const char *encoding = PQparameterStatus(a->connection, "server_encoding");
    if (encoding != NULL && strcmp(encoding, "SQL_ASCII") == 0)
        PQsetClientEncoding(a->connection, "SQL_ASCII");
}

static void attempt_done(struct worker_job *job) {
    struct attempt *a = (struct attempt *)job;
    if (a->owner != NULL) {
        a->owner->attempt = NULL;
        adopt(a->owner, a->connection);
    } else {
        PQfinish(a->connection);
    }
    free(a->conninfo);
    free(a->application);
    free(a);
}

void pg_connect(struct pg *pg) {
    if (pg->state != PG_CLOSED)
        return;
    struct attempt *a = calloc(1, sizeof *a);
    if (a == NULL)
        abort();
    a->job = (struct worker_job){.run = attempt_run, .done = attempt_done, .drop = attempt_done};
    a->owner = pg;
    a->conninfo = copy(pg->conninfo);
    a->application = copy(pg->application);
    a->timeout_s = pg->timeout_s;
    pg->attempt = a;
    pg->state = PG_CONNECTING;
    worker_submit(pg->worker, &a->job);
}

void pg_close(struct pg *pg) {
    loop_forget(pg->loop, &pg->io);
    if (pg->attempt != NULL)
        pg->attempt->owner = NULL;
    pg->attempt = NULL;
    if (pg->connection != NULL)
        PQfinish(pg->connection);
    pg->connection = NULL;
    pg->first = pg->count = 0;
    memset(pg->prepared, 0, sizeof pg->prepared);
    pg->state = PG_CLOSED;
    pg->generation++;
}

enum pg_state pg_state(const struct pg *pg) {
    return pg->state;
}

const struct fault *pg_fault(const struct pg *pg) {
    return &pg->fault;
}

bool pg_plans_are_old(struct pg *pg) {
    int64_t now = loop_now_us(), age_us = pg->planned_us - pg->ready_us;
    if (age_us < PLANS_FIRST_US)
        age_us = PLANS_FIRST_US;
    if (!pg->prepare || now < pg->planned_us + (age_us < PLANS_MOST_US ? age_us : PLANS_MOST_US))
        return false;
    pg->planned_us = now;
    return true;
}

size_t pg_pending(const struct pg *pg) {
    return pg->count;
}

const char *pg_user(const struct pg *pg) {
    return pg->connection != NULL ? PQuser(pg->connection) : "";
}

void pg_add_text(struct pg_call *call, const char *text) {
    call->values[call->count++] = text;
}

void pg_add_int(struct pg_call *call, int64_t number) {
    char *digits = call->numbers[call->count];
    snprintf(digits, sizeof call->numbers[0], "%lld", (long long)number);
    call->values[call->count++] = digits;
}

void pg_add_bool(struct pg_call *call, bool value) {
    call->values[call->count++] = value ? "t" : "f";
}

void pg_add_binary(struct pg_call *call, const void *bytes, size_t size) {
    call->formats[call->count] = 1;
    call->sizes[call->count] = (int)size;
    call->values[call->count++] = bytes;
}

static void expect(struct pg *pg, enum request_kind kind, pg_done_fn done, void *context) {
    if (pg->count == pg->capacity) {
        struct request *grown = calloc(pg->capacity * 2, sizeof *grown);
        if (grown == NULL)
            abort();
        for (size_t i = 0; i < pg->count; i++)
            grown[i] = pg->requests[(pg->first + i) % pg->capacity];
        free(pg->requests);
        pg->requests = grown;
        pg->capacity *= 2;
        pg->first = 0;
    }
    pg->requests[(pg->first + pg->count++) % pg->capacity] = (struct request){kind, done, context};
}

static void flush(struct pg *pg) {
    int left = PQflush(pg->connection);
    if (left < 0)
        break_with(pg, FAULT_RETRY, "connection", PQerrorMessage(pg->connection));
    else
        loop_update(pg->loop, &pg->io, left ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void pg_send(struct pg *pg, const struct pg_statement *statement, const struct pg_call *call, pg_done_fn done,
             void *context) {
    static const struct pg_call none;
    if (pg->state != PG_READY)
        return;
    if (call == NULL)
        call = &none;
    int sent;
    if (!pg->prepare) {
        sent = PQsendQueryParams(pg->connection, statement->text, call->count, NULL, call->values, call->sizes,
                                 call->formats, 1);
    } else {
        sent = 1;
        if (!pg->prepared[statement->index]) {
            sent = PQsendPrepare(pg->connection, statement->name, statement->text, 0, NULL);
            if (sent)
                expect(pg, REQUEST_PREPARE, NULL, NULL);
            pg->prepared[statement->index] = true;
        }
        sent = sent && PQsendQueryPrepared(pg->connection, statement->name, call->count, call->values, call->sizes,
                                           call->formats, 1);
    }
    if (!sent) {
        break_with(pg, FAULT_RETRY, "connection", PQerrorMessage(pg->connection));
        return;
    }
    expect(pg, REQUEST_QUERY, done, context);
}

void pg_sync(struct pg *pg) {
    if (pg->state != PG_READY)
        return;
    if (PQpipelineSync(pg->connection) != 1) {
        break_with(pg, FAULT_RETRY, "connection", PQerrorMessage(pg->connection));
        return;
    }
    expect(pg, REQUEST_SYNC, NULL, NULL);
    flush(pg);
}

/* Errors that no waiting heals: somebody must change a grant, a schema or a password. */
static enum fault_class class_of(const char *state) {
    static const char *const lasting[] = {"42501", "42P01", "3F000", "42703", "42883"};
    for (size_t i = 0; i < sizeof lasting / sizeof *lasting; i++)
        if (strcmp(state, lasting[i]) == 0)
            return FAULT_FATAL;
    return FAULT_RETRY;
}

/* A failed statement breaks the connection. A pooler in transaction mode leads to servers that do not know what was
 * prepared, or know it from somebody else: from then on nothing is prepared. */
static void break_with_result(struct pg *pg, const PGresult *libpq) {
    const char *state = PQresultErrorField(libpq, PG_DIAG_SQLSTATE);
    const char *source = PQresultErrorField(libpq, PG_DIAG_SOURCE_FUNCTION); /* the text may be in any language */
    const char *primary = PQresultErrorField(libpq, PG_DIAG_MESSAGE_PRIMARY);
    const char *note = "";
    if (state != NULL && (strcmp(state, "26000") == 0 || strcmp(state, "42P05") == 0)) {
        pg->prepare = false;
        note = "; going on without prepared statements, as the option prepare=false would from the start";
    }
    char message[sizeof pg->fault.text];
    snprintf(message, sizeof message, "%s%s", primary ? primary : PQresultErrorMessage(libpq), note);
    bool is_hidden = state != NULL && strcmp(state, "42501") == 0 && source && strcmp(source, "check_enable_rls") == 0;
    break_with(pg, state ? class_of(state) : FAULT_RETRY,
               is_hidden ? PG_ROWS_HIDDEN
               : state   ? state
                         : "connection",
               message);
}

/* Hands one result to the request it answers; false when the connection is no longer usable. */
static bool deliver(struct pg *pg, PGresult *libpq) {
    ExecStatusType status = PQresultStatus(libpq);
    struct request request = pg->requests[pg->first];
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK && status != PGRES_PIPELINE_SYNC) {
        break_with_result(pg, libpq);
        PQclear(libpq);
        return false;
    }
    if (status == PGRES_PIPELINE_SYNC) {
        pg->first = (pg->first + 1) % pg->capacity;
        pg->count--;
    }
    if (request.kind != REQUEST_QUERY || request.done == NULL) {
        PQclear(libpq);
        return true;
    }
    unsigned generation = pg->generation;
    struct pg_result *result = malloc(sizeof *result);
    if (result == NULL)
        abort();
    bool taken = false;
    *result = (struct pg_result){.libpq = libpq, .taken = &taken};
    request.done(request.context, result);
    if (!taken)
        pg_result_free(result);
    return generation == pg->generation && pg->state == PG_READY;
}

static void read_ready(void *context, uint32_t events) {
    struct pg *pg = context;
    if (events & EPOLLOUT)
        flush(pg);
    if (pg->state != PG_READY)
        return;
    if (PQconsumeInput(pg->connection) != 1) {
        break_with(pg, FAULT_RETRY, "connection", PQerrorMessage(pg->connection));
        return;
    }
    while (pg->count > 0 && !PQisBusy(pg->connection)) {
        PGresult *libpq = PQgetResult(pg->connection);
        if (libpq != NULL) {
            if (!deliver(pg, libpq))
                return;
            continue;
        }
        /* NULL ends the results of one statement; a sync point has none. */
        if (pg->requests[pg->first].kind == REQUEST_SYNC)
            break;
        pg->first = (pg->first + 1) % pg->capacity;
        pg->count--;
    }
    if (pg->count > 0)
        failpoint_pass(FAILPOINT_ANSWER_HALF_READ);
    if (PQstatus(pg->connection) == CONNECTION_BAD)
        break_with(pg, FAULT_RETRY, "connection", PQerrorMessage(pg->connection));
    else
        flush(pg);
}

struct pg_result *pg_take(struct pg_result *result) {
    *result->taken = true;
    return result;
}

void pg_result_free(struct pg_result *result) {
    if (result == NULL)
        return;
    PQclear(result->libpq);
    free(result);
}

size_t pg_result_bytes(const struct pg_result *r) {
    return PQresultMemorySize(r->libpq);
}

int pg_rows(const struct pg_result *r) {
    return PQntuples(r->libpq);
}

bool pg_is_null(const struct pg_result *r, int row, int column) {
    return PQgetisnull(r->libpq, row, column) == 1;
}

const char *pg_bytes(const struct pg_result *r, int row, int column, int *size) {
    *size = PQgetlength(r->libpq, row, column);
    return pg_is_null(r, row, column) ? NULL : PQgetvalue(r->libpq, row, column);
}

const char *pg_text(const struct pg_result *r, int row, int column) {
    return PQgetvalue(r->libpq, row, column);
}

int64_t pg_int(const struct pg_result *r, int row, int column) {
    const unsigned char *bytes = (const unsigned char *)PQgetvalue(r->libpq, row, column);
    int size = PQgetlength(r->libpq, row, column);
    uint64_t value = size > 0 && bytes[0] & 0x80 && size > 1 ? UINT64_MAX : 0;
    for (int i = 0; i < size; i++)
        value = value << 8 | bytes[i];
    return (int64_t)value;
}
