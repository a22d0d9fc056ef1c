/* relay_parts.c: puts the relay's parts together from the configuration. */
#include "denpyo/relay_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "denpyo/log.h"

#define PROGRESS_EVERY_US 500000
#define CONNECT_TIMEOUT_S 5
#define LOOKUP_TIMEOUT_MS 2000 /* a stop waits for the one that is under way */
#define TXN_SHARES 3           /* a transaction has so many times inflight.messages at most */

static void open_connections(struct relay *r) {
    static const char *const names[] = {"denpyo lease", "denpyo claim", "denpyo settle"};
    for (size_t i = 0; i < RELAY_CONNECTIONS; i++) {
        r->pg_workers[i] = worker_new(r->loop);
        r->connections[i] = pg_new(r->loop, r->pg_workers[i],
                                   &(struct pg_options){.conninfo = r->config->postgres,
                                                        .role = names[i],
                                                        .prepare = r->config->prepare,
                                                        .connect_timeout_s = CONNECT_TIMEOUT_S});
    }
}

static const enum publish_unknown unknown[] = {
    [CONFIG_UNKNOWN_LOOK_UP] = PUBLISH_LOOK_UP,
    [CONFIG_UNKNOWN_RESEND] = PUBLISH_RESEND,
    [CONFIG_UNKNOWN_HOLD] = PUBLISH_HOLD,
};

struct relay *relay_parts_new(const struct config *config) {
    struct relay *r = calloc(1, sizeof *r);
    if (r == NULL || (r->properties = calloc(config->kafka_count + 1, sizeof *r->properties)) == NULL)
        abort();
    for (size_t i = 0; i < config->kafka_count; i++)
        r->properties[i] = (struct kafka_property){config->kafka[i].name, config->kafka[i].value};
    r->config = config;
    r->loop = loop_new();
    r->kafka_worker = worker_new(r->loop);
    r->tail_worker = worker_new(r->loop);
    open_connections(r);
    statements_init(&r->statements, config->schema);
    lease_init(&r->lease, r->connections[RELAY_LEASE], &r->statements, config->relay, config->lease_ms);
    /* A transaction that outlives the lease helps nobody. */
    ledger_init(&r->ledger, &r->statements, &r->lease, config->lease_ms > 5000 ? config->lease_ms : 5000);
    publish_init(&r->publisher,
                 &(struct publish_options){.retry_initial_ms = config->retry_initial_ms,
                                           .retry_max_ms = config->retry_max_ms,
                                           .retry_max_attempts = config->retry_max_attempts,
                                           .holds_rejected = config->on_reject == CONFIG_REJECT_HOLD,
                                           .on_unknown = unknown[config->on_unknown],
                                           .metadata_refresh_ms = config->metadata_refresh_ms,
                                           .absent_probe_ms = 1000,
                                           .lookup_timeout_ms = LOOKUP_TIMEOUT_MS,
                                           .close_ms = config->batch_close_ms,
                                           .kept_bytes = 2 * config->inflight_bytes},
                 r->kafka_worker);
    settle_init(&r->settle, &r->ledger, &r->publisher.holds, &r->publisher.overdue, r->connections[RELAY_SETTLE]);
    /* The next transaction's first rows are read while one commits. */
    int64_t shares = config->delivery == CONFIG_EXACTLY_ONCE ? TXN_SHARES + 1 : 1;
    claim_init(&r->claim,
               &(struct claim_options){.batch_rows = config->batch_rows,
                                       .batch_bytes = config->batch_bytes,
                                       .inflight_messages = config->inflight_messages * shares,
                                       .inflight_bytes = config->inflight_bytes,
                                       .poll_busy_ms = config->poll_busy_ms,
                                       .poll_linger_ms = config->poll_linger_ms,
                                       .poll_idle_ms = config->poll_idle_ms},
               &r->ledger, &r->publisher, r->connections[RELAY_CLAIM]);
    r->kafka_options = (struct kafka_options){.brokers = config->brokers,
                                              .properties = r->properties,
                                              .property_count = config->kafka_count,
                                              .report = publish_report,
                                              .context = &r->publisher};
    if (config->delivery == CONFIG_EXACTLY_ONCE)
        r->kafka_options.transactional_id = config->transactional_id;
    txn_init(&r->txn, &r->ledger, &r->publisher, r->kafka_worker, &r->kafka_options,
             config->inflight_messages * TXN_SHARES);
    reconcile_init(&r->reconcile, &r->ledger, &r->publisher, r->connections[RELAY_CLAIM], r->tail_worker,
                   &r->kafka_options);
    identity_init(&r->identity, &r->ledger, &r->publisher, r->connections[RELAY_CLAIM], config->brokers,
                  config->accept_cluster_id);
    load_init(&r->load, &r->ledger, &r->publisher, &r->settle, &r->reconcile, &r->identity,
              r->connections[RELAY_CLAIM]);
    /* Beside the settlements, which wait for a step gladly: renewals must not. */
    sweep_init(&r->sweep, &r->ledger, r->connections[RELAY_SETTLE], config->sweep_interval_ms);
    return r;
}

void relay_parts_free(struct relay *r) {
    for (size_t i = 0; i < RELAY_CONNECTIONS; i++)
        pg_free(r->connections[i]);
    for (size_t i = 0; i < RELAY_CONNECTIONS; i++)
        worker_free(r->pg_workers[i]);
    worker_free(r->kafka_worker);
    worker_free(r->tail_worker);
    load_free(&r->load);
    claim_free(&r->claim);
    settle_free(&r->settle);
    publish_free(&r->publisher);
    window_free(&r->ledger.cursor);
    statements_free(&r->statements);
    loop_forget(r->loop, &r->signal_io);
    close(r->signal_io.fd);
    loop_free(r->loop);
    free(r->properties);
    free(r);
}

/* One word on what the relay is about, trouble first. */
static const char *activity(const struct relay *r) {
    static const char *const words[] = {
        [RELAY_START] = "starting", [RELAY_STANDBY] = "standby",  [RELAY_LOAD] = "loading",    [RELAY_LEAD] = "leading",
        [RELAY_DRAIN] = "stopping", [RELAY_RELEASE] = "stopping", [RELAY_STOPPED] = "stopped",
    };
    return r->database_lost ? "no database" : r->broker_lost ? "no broker" : words[r->state];
}

void relay_parts_progress(struct relay *r, int64_t now_us) {
    if (!r->config->progress || now_us < r->progress_us + PROGRESS_EVERY_US)
        return;
    double seconds = (double)(now_us - r->progress_us) / 1e6;
    uint64_t rows = r->settle.settled_rows;
    double rate = r->progress_us > 0 ? (double)(rows - r->progress_rows) / seconds : 0;
    const struct window_cursor *cursor = &r->ledger.cursor;
    long long behind = cursor->to != NULL && r->claim.bounded && r->claim.high > cursor->after_id
                           ? (long long)(r->claim.high - cursor->after_id)
                           : 0;
    char line[160];
    snprintf(line, sizeof line, "%s  %.0f/s  dispatched %llu  in flight %zu  behind %lld  failures %llu  rejected %llu",
             activity(r), rate, (unsigned long long)rows, r->ledger.open.rows, behind,
             (unsigned long long)r->publisher.failed, (unsigned long long)r->publisher.rejected);
    log_progress(line);
    r->progress_us = now_us;
    r->progress_rows = rows;
}

void relay_parts_remedy(const struct relay *r, struct fault *f) {
    size_t size = strlen(f->text);
    if (strcmp(f->code, "42P01") == 0 || strcmp(f->code, "3F000") == 0) /* undefined_table, invalid_schema_name */
        snprintf(f->text + size, sizeof f->text - size, "; was the schema \"%s\" dropped? run denpyo init",
                 r->config->schema);
    const char *user = pg_user(r->connections[RELAY_LEASE]), *table = strchr(f->text, '"');
    if (strcmp(f->code, PG_ROWS_HIDDEN) == 0)
        snprintf(f->text + size, sizeof f->text - size,
                 "; the relay must see every row and waits: alter table \"%s\".%.*s disable row level security, or "
                 "alter role \"%s\" bypassrls",
                 r->config->schema, table ? (int)strcspn(table + 1, "\"") + 2 : 1, table ? table : "…", user);
    if (strcmp(f->code, "42703") == 0 || strcmp(f->code, "42883") == 0) /* undefined_column, undefined_function */
        snprintf(f->text + size, sizeof f->text - size, "; the schema \"%s\" is not as denpyo init made it",
                 r->config->schema);
    if (strcmp(f->code, "42501") == 0) /* insufficient_privilege */
        snprintf(f->text + size, sizeof f->text - size, "; GRANT %s TO %s gives the relay what it needs",
                 r->config->role_relay, user);
}
