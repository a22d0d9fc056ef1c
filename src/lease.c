/* lease.c: takes and renews the leadership by compare-and-set on one row. */
#include "denpyo/lease.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "denpyo/failpoint.h"
#include "denpyo/loop.h"

#define TOOK_PLACE_US 1000
#define PATIENCE_MOST_US INT64_C(300000000)
#define LOOK_AGAIN_US 250000 /* a standby takes over within this time of a clean stop */

static void new_holder(char out[37]) {
    unsigned char b[16];
    if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
        abort();
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    snprintf(out, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3],
             b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

static void asked(struct lease *l) {
    l->asked = true;
    l->sent_us = loop_now_us();
}

/* An answer came: the next one is waited for as long as the first. */
static void answered(struct lease *l) {
    l->asked = false;
    l->patience_us = l->lease_ms * 1000;
}

void lease_init(struct lease *l, struct pg *pg, const struct statements *statements, const char *relay,
                int64_t lease_ms) {
    *l = (struct lease){.pg = pg, .statements = statements, .relay = relay, .lease_ms = lease_ms};
    answered(l);
    new_holder(l->holder);
    char host[80] = "unknown";
    gethostname(host, sizeof host - 1);
    snprintf(l->info, sizeof l->info, "%s pid %ld", host, (long)getpid());
}

static void keep(struct lease *l) {
    /* A tenth of the lease in hand: the remote expiry lies after the local one whatever the two clocks' rates. */
    l->deadline_us = l->sent_us + l->lease_ms * 900;
    l->next_us = l->sent_us + l->lease_ms * 1000 / 3;
}

static void on_taken(void *context, struct pg_result *r) {
    struct lease *l = context;
    answered(l);
    if (pg_rows(r) == 0)
        return; /* another one was faster: look again */
    l->epoch = pg_int(r, 0, 0);
    l->held = true;
    l->lost = false;
    l->told = NULL; /* a takeover wipes what the last leader said */
    keep(l);
    failpoint_pass(FAILPOINT_LEASE_TAKEN);
}

static void send(struct lease *l, enum statement which, const struct pg_call *call, pg_done_fn done) {
    asked(l);
    statements_send(l->statements, l->pg, which, call, done, l);
    pg_sync(l->pg);
}

static void on_inserted(void *context, struct pg_result *r) {
    struct lease *l = context;
    (void)r;
    answered(l);
    l->next_us = loop_now_us() + TOOK_PLACE_US; /* soon: usually the row is there now */
}

static void on_look(void *context, struct pg_result *r) {
    struct lease *l = context;
    struct pg_call call = {0};
    answered(l);
    pg_add_text(&call, l->relay);
    if (pg_rows(r) == 0) {
        send(l, STATEMENT_LEASE_INSERT, &call, on_inserted);
    } else if (pg_int(r, 0, 1) != 0) {
        pg_add_int(&call, pg_int(r, 0, 0));
        pg_add_text(&call, l->holder);
        pg_add_text(&call, l->info);
        pg_add_int(&call, l->lease_ms);
        pg_add_text(&call, DENPYO_VERSION);
        send(l, STATEMENT_LEASE_TAKE, &call, on_taken);
        failpoint_pass(FAILPOINT_LEASE_TAKE_SENT);
    } else if (strcmp(l->leader, pg_text(r, 0, 2)) != 0) {
        snprintf(l->leader, sizeof l->leader, "%s", pg_text(r, 0, 2));
        l->standby_known = false;
    }
}

static void on_renewed(void *context, struct pg_result *r) {
    struct lease *l = context;
    answered(l);
    if (pg_rows(r) == 0) {
        l->held = false;
        l->lost = true;
    } else {
        keep(l);
        failpoint_pass(FAILPOINT_LEASE_RENEWED);
    }
}

/* In a transaction that fails where row-level security would hide the row: not seeing who leads is not that nobody
 * does. */
static void send_look(struct lease *l, const struct pg_call *call) {
    struct pg_call settings = {0};
    pg_add_int(&settings, l->lease_ms);
    statements_send(l->statements, l->pg, STATEMENT_BEGIN, NULL, NULL, NULL);
    statements_send(l->statements, l->pg, STATEMENT_SETTINGS, &settings, NULL, NULL);
    asked(l);
    statements_send(l->statements, l->pg, STATEMENT_LEASE_LOOK, call, on_look, l);
    statements_send(l->statements, l->pg, STATEMENT_COMMIT, NULL, NULL, NULL);
    pg_sync(l->pg);
}

void lease_step(struct lease *l, int64_t now_us) {
    if (l->asked || l->lost || now_us < l->next_us || pg_state(l->pg) != PG_READY)
        return;
    struct pg_call call = {0};
    pg_add_text(&call, l->relay);
    if (!l->held) {
        pg_add_text(&call, l->holder);
        l->next_us = now_us + LOOK_AGAIN_US;
        send_look(l, &call);
    } else {
        pg_add_int(&call, l->epoch);
        pg_add_text(&call, l->holder);
        pg_add_int(&call, l->lease_ms);
        pg_add_text(&call, l->condition);
        pg_add_text(&call, l->detail);
        l->told = l->condition;
        send(l, STATEMENT_LEASE_RENEW, &call, on_renewed);
        failpoint_pass(FAILPOINT_LEASE_RENEW_SENT);
    }
}

static bool is_other(const char *a, const char *b) {
    return a == NULL || b == NULL ? a != b : strcmp(a, b) != 0;
}

void lease_describe(struct lease *l, const char *condition, const char *detail) {
    l->condition = condition;
    l->detail = detail;
    if (l->held && !l->asked && is_other(condition, l->told))
        l->next_us = 0;
}

bool lease_is_ours(const struct lease *l, int64_t now_us) {
    return l->held && now_us < l->deadline_us;
}

void lease_release(struct lease *l) {
    struct pg_call call = {0};
    pg_add_text(&call, l->relay);
    pg_add_int(&call, l->epoch);
    pg_add_text(&call, l->holder);
    failpoint_pass(FAILPOINT_LEASE_RELEASE);
    l->held = false;
    statements_send(l->statements, l->pg, STATEMENT_LEASE_RELEASE, &call, NULL, NULL);
    pg_sync(l->pg);
    failpoint_pass(FAILPOINT_LEASE_RELEASE_SENT);
}

void lease_reconnect(struct lease *l) {
    l->asked = false;
    l->next_us = 0;
}

bool lease_gives_up(struct lease *l, int64_t now_us) {
    if (!l->asked || pg_state(l->pg) != PG_READY || now_us < l->sent_us + l->patience_us)
        return false;
    l->patience_us *= 2;
    if (l->patience_us > PATIENCE_MOST_US)
        l->patience_us = PATIENCE_MOST_US;
    return true;
}

void lease_forget(struct lease *l) {
    l->held = l->lost = l->asked = false;
    l->next_us = 0;
    l->leader[0] = 0;
}

const char *lease_leader(struct lease *l, bool *changed) {
    *changed = !l->standby_known && l->leader[0] != 0;
    l->standby_known = true;
    return l->leader;
}

int64_t lease_wake_us(const struct lease *l) {
    return l->asked || l->lost || pg_state(l->pg) != PG_READY ? INT64_MAX : l->next_us;
}
