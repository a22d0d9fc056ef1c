/* sweep.c: walks the outbox step by step and has parked what was settled without a trace. */
#include "denpyo/sweep.h"

#include "denpyo/failpoint.h"
#include "denpyo/log.h"
#include "denpyo/loop.h"

#define FIRST_US INT64_C(60000000) /* after the start of a term, unless the interval is shorter */
#define PAUSE_FACTOR 20            /* a step of 5 ms is followed by a pause of 100 ms */
#define PAUSE_LEAST_US 20000

void sweep_init(struct sweep *s, struct ledger *ledger, struct pg *pg, int64_t interval_ms) {
    *s = (struct sweep){.ledger = ledger, .pg = pg, .interval_us = interval_ms * 1000};
}

void sweep_send(const struct ledger *ledger, struct pg *pg, int64_t after_id, const char *error, pg_done_fn done,
                void *context) {
    struct pg_call call = {0};
    pg_add_text(&call, ledger->lease->relay);
    pg_add_int(&call, after_id);
    pg_add_int(&call, SWEEP_ROWS);
    pg_add_text(&call, error);
    ledger_begin(ledger, pg, true);
    statements_send(ledger->statements, pg, STATEMENT_SWEEP_PAGE, &call, done, context);
    statements_send(ledger->statements, pg, STATEMENT_COMMIT, NULL, NULL, NULL);
    pg_sync(pg);
}

struct sweep_answer sweep_read(const struct pg_result *result) {
    return (struct sweep_answer){.last_id = pg_int(result, 0, 0),
                                 .seen = pg_int(result, 0, 1),
                                 .found = pg_int(result, 0, 2),
                                 .first_found_id = pg_int(result, 0, 3)};
}

static void end_round(struct sweep *s, int64_t now_us) {
    log_event(LOG_DEBUG, "sweep ended", log_int("messages", (int64_t)s->round_seen),
              log_int("found", (int64_t)s->round_found), LOG_END);
    s->rounds++;
    s->after_id = 0;
    s->round_seen = s->round_found = 0;
    s->next_us = now_us + s->interval_us;
}

static void on_step(void *context, struct pg_result *r) {
    struct sweep *s = context;
    struct sweep_answer answer = sweep_read(r);
    int64_t now = loop_now_us(), pause = (now - s->sent_us) * PAUSE_FACTOR;
    s->is_asked = false;
    failpoint_pass(FAILPOINT_SWEEP_ANSWERED);
    s->round_seen += (uint64_t)answer.seen;
    s->round_found += (uint64_t)answer.found;
    s->found += (uint64_t)answer.found;
    if (answer.found > 0) {
        log_event(LOG_ERROR, "the sweep found messages that were settled without a receipt; they are sent now",
                  log_int("messages", answer.found), log_int("first_id", answer.first_found_id), LOG_END);
        s->ledger->ask_next_due = true;
    }
    s->after_id = answer.last_id;
    s->next_us = now + (pause > PAUSE_LEAST_US ? pause : PAUSE_LEAST_US);
    if (answer.seen < SWEEP_ROWS)
        end_round(s, now);
}

void sweep_step(struct sweep *s, int64_t now_us) {
    if (s->next_us == 0)
        s->next_us = now_us + (s->interval_us < FIRST_US ? s->interval_us : FIRST_US);
    if (s->interval_us == 0 || s->is_asked || now_us < s->next_us || pg_state(s->pg) != PG_READY)
        return;
    s->is_asked = true;
    s->sent_us = now_us;
    sweep_send(s->ledger, s->pg, s->after_id, SWEEP_ERROR, on_step, s);
    failpoint_pass(FAILPOINT_SWEEP_SENT);
}

void sweep_reset(struct sweep *s) {
    s->is_asked = false;
}
