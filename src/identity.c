/* identity.c: compares the clusters on record with those that answer, and closes the ledger's past when it has moved.
 */
#include "denpyo/identity.h"

#include <stdio.h>
#include <string.h>

#include "denpyo/failpoint.h"
#include "denpyo/kafka.h"
#include "denpyo/log.h"
#include "denpyo/sweep.h"

/* What people read of messages that came along from another cluster. */
#define WAS_SENT "was on its way when the database moved to another cluster: it may have arrived"
#define WAS_WAITING "had no receipt when the database moved to another cluster: sent from here"

void identity_init(struct identity *i, struct ledger *ledger, struct publisher *publisher, struct pg *pg,
                   const char *brokers, const char *accepted) {
    *i =
        (struct identity){.ledger = ledger, .publisher = publisher, .pg = pg, .brokers = brokers, .accepted = accepted};
}

void identity_reset(struct identity *i) {
    i->state = IDENTITY_IDLE;
}

/* ---- last step: what holds from now on ---- */

static void on_recorded(void *context, struct pg_result *r) {
    struct identity *i = context;
    (void)r;
    failpoint_pass(FAILPOINT_IDENTITY_RECORDED);
    i->state = i->has_moved ? IDENTITY_MOVED : IDENTITY_DONE;
}

static void record(struct identity *i) {
    const struct lease *lease = i->ledger->lease;
    struct pg_call call = {0};
    pg_add_text(&call, lease->relay);
    pg_add_int(&call, lease->epoch);
    pg_add_text(&call, lease->holder);
    if (i->system != 0) {
        pg_add_int(&call, i->system);
        pg_add_int(&call, i->timeline);
    } else {
        pg_add_text(&call, NULL);
        pg_add_text(&call, NULL);
    }
    pg_add_text(&call, i->cluster[0] != 0 ? i->cluster : NULL);
    ledger_begin(i->ledger, i->pg, true);
    statements_send(i->ledger->statements, i->pg, STATEMENT_IDENTITY_RECORD, &call, NULL, NULL);
    statements_send(i->ledger->statements, i->pg, STATEMENT_COMMIT, NULL, on_recorded, i);
    pg_sync(i->pg);
}

/* ---- another cluster: the past is closed ---- */

static void on_swept(void *context, struct pg_result *r) {
    struct identity *i = context;
    struct sweep_answer answer = sweep_read(r);
    i->swept += answer.seen;
    i->found += answer.found;
    if (answer.seen == SWEEP_ROWS && answer.last_id < i->floor_id) {
        sweep_send(i->ledger, i->pg, answer.last_id, WAS_WAITING, on_swept, i);
        return;
    }
    log_event(LOG_WARN, "the outbox's past is closed; what had no receipt is sent from here",
              log_int("messages", i->swept), log_int("without_receipt", i->found), LOG_END);
    failpoint_pass(FAILPOINT_IDENTITY_SWEPT);
    record(i);
}

static void on_floor(void *context, struct pg_result *r) {
    struct identity *i = context;
    i->floor_id = pg_int(r, 0, 0);
    log_event(LOG_WARN, "messages up to the floor are compared with their receipts", log_int("floor_id", i->floor_id),
              log_int("open_batches", pg_int(r, 0, 1)), log_int("on_their_way", pg_int(r, 0, 2)), LOG_END);
}

static void on_floor_committed(void *context, struct pg_result *r) {
    struct identity *i = context;
    (void)r;
    failpoint_pass(FAILPOINT_IDENTITY_FLOOR_COMMITTED);
    sweep_send(i->ledger, i->pg, 0, WAS_WAITING, on_swept, i);
}

static void close_past(struct identity *i) {
    log_event(LOG_ERROR,
              "the database lives in another PostgreSQL cluster now (restored, upgraded or copied): its transaction "
              "ids mean nothing here; what has no receipt is sent again with the same id",
              log_int("system_identifier", i->system), log_int("before", i->recorded_system), LOG_END);
    i->has_moved = true;
    i->swept = i->found = 0;
    struct pg_call call = {0};
    pg_add_text(&call, i->ledger->lease->relay);
    pg_add_int(&call, i->ledger->lease->epoch);
    pg_add_text(&call, WAS_SENT);
    ledger_begin(i->ledger, i->pg, true);
    statements_send(i->ledger->statements, i->pg, STATEMENT_IDENTITY_FLOOR, &call, on_floor, i);
    statements_send(i->ledger->statements, i->pg, STATEMENT_COMMIT, NULL, on_floor_committed, i);
    pg_sync(i->pg);
    failpoint_pass(FAILPOINT_IDENTITY_FLOOR_SENT);
}

/* ---- what has changed? ---- */

/* False: refused. */
static bool accept_brokers(struct identity *i, const char *before) {
    const char *now = i->publisher->kafka != NULL ? kafka_cluster_id(i->publisher->kafka) : NULL;
    if (now != NULL)
        snprintf(i->cluster, sizeof i->cluster, "%s", now);
    if (*before == 0 || i->cluster[0] == 0 || strcmp(before, i->cluster) == 0)
        return true;
    if (strcmp(i->accepted, i->cluster) == 0) {
        log_event(LOG_WARN, "another Kafka cluster is accepted: receipts until now speak of the one before",
                  log_str("cluster_id", i->cluster), log_str("before", before), LOG_END);
        return true;
    }
    i->state = IDENTITY_REFUSED;
    return fault_set(&i->fault, FAULT_FATAL, "CLUSTER_ID",
                     "the brokers \"%s\" are of Kafka cluster %s, but until now this outbox was sent to cluster %s; if "
                     "that is meant, confirm it: --accept-cluster-id %s",
                     i->brokers, i->cluster, before, i->cluster);
}

static void compare(struct identity *i) {
    bool is_other = i->recorded_system != 0 && i->system != 0 && i->system != i->recorded_system;
    if (is_other || i->is_ahead) {
        close_past(i);
        return;
    }
    if (i->recorded_timeline != 0 && i->timeline != 0 && i->timeline != i->recorded_timeline)
        log_event(
            LOG_WARN,
            "the database has a new timeline (a standby was promoted, or an earlier point in time restored): what "
            "it lost may have been sent already, and what it no longer knows as sent is sent again with the same id",
            log_int("timeline", i->timeline), log_int("before", i->recorded_timeline), LOG_END);
    record(i);
}

static void on_server(void *context, struct pg_result *r) {
    struct identity *i = context;
    i->system = pg_int(r, 0, 0);
    i->timeline = pg_int(r, 0, 1);
    compare(i);
}

static void on_look(void *context, struct pg_result *r) {
    struct identity *i = context;
    enum { SYSTEM, TIMELINE, CLUSTER, IS_READABLE, IS_AHEAD, IN_RECOVERY };
    if (pg_rows(r) == 0 || pg_int(r, 0, IN_RECOVERY) != 0) {
        i->state = IDENTITY_DONE; /* the load sees it, too, and says so */
        return;
    }
    i->recorded_system = pg_int(r, 0, SYSTEM);
    i->recorded_timeline = pg_int(r, 0, TIMELINE);
    i->is_ahead = pg_int(r, 0, IS_AHEAD) != 0;
    if (!accept_brokers(i, pg_text(r, 0, CLUSTER)))
        return;
    if (pg_int(r, 0, IS_READABLE) != 0) {
        statements_send(i->ledger->statements, i->pg, STATEMENT_IDENTITY_SERVER, NULL, on_server, i);
        pg_sync(i->pg);
        return;
    }
    if (!i->said_unreadable)
        log_event(LOG_WARN,
                  "the server's identity may not be read: a move to another cluster is noticed only where its "
                  "transaction ids are lower; grant execute on pg_control_system(), pg_current_wal_lsn() and "
                  "pg_walfile_name(pg_lsn)",
                  LOG_END);
    i->said_unreadable = true;
    compare(i);
}

void identity_start(struct identity *i) {
    i->state = IDENTITY_BUSY;
    i->system = i->timeline = i->floor_id = 0;
    i->has_moved = false;
    i->is_waiting = true;
    identity_step(i);
}

void identity_step(struct identity *i) {
    bool has_answer = i->publisher->kafka == NULL || kafka_cluster_id(i->publisher->kafka) != NULL;
    if (i->state != IDENTITY_BUSY || !i->is_waiting || !has_answer)
        return;
    i->is_waiting = false;
    struct pg_call call = {0};
    pg_add_text(&call, i->ledger->lease->relay);
    ledger_look(i->ledger, i->pg, STATEMENT_IDENTITY_LOOK, &call, on_look, i);
}
