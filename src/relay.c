/* relay.c: the relay's states as a table of steps, run by one loop over the database and the broker. */
#include "denpyo/relay.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "denpyo/log.h"
#include "denpyo/relay_broker.h"
#include "denpyo/relay_condition.h"
#include "denpyo/relay_parts.h"
#include "denpyo/relay_producer.h"

#define RECONNECT_FIRST_US 100000
#define RECONNECT_MOST_US 2000000
#define QUIET_US 1000000            /* so long without trouble after a reconnection, and the database is back */
#define RELEASE_WAIT_US 1000000     /* giving the lease back must not hold up the end */
#define GIVE_UP_US INT64_C(5000000) /* after the deadline of a stop: to record what came, no longer */

/* ---- the states ---- */

static void step_start(struct relay *r, int64_t now);
static void step_standby(struct relay *r, int64_t now);
static void step_load(struct relay *r, int64_t now);
static void step_lead(struct relay *r, int64_t now);
static void step_drain(struct relay *r, int64_t now);
static void step_release(struct relay *r, int64_t now);

static const struct {
    const char *name;
    void (*step)(struct relay *r, int64_t now);
} states[] = {
    [RELAY_START] = {"start", step_start},       /* waits for a broker's first answer */
    [RELAY_STANDBY] = {"standby", step_standby}, /* waits for the lease */
    [RELAY_LOAD] = {"load", step_load},          /* reads where the ledger stands */
    [RELAY_LEAD] = {"lead", step_lead},          /* claims, publishes, settles */
    [RELAY_DRAIN] = {"drain", step_drain},       /* claims nothing new, waits for acknowledgments */
    [RELAY_RELEASE] = {"release", step_release}, /* gives the lease back */
    [RELAY_STOPPED] = {"stopped", NULL},
};

static void enter(struct relay *r, enum relay_state state) {
    log_event(LOG_DEBUG, "state", log_str("from", states[r->state].name), log_str("to", states[state].name), LOG_END);
    r->state = state;
    r->entered_us = loop_now_us();
}

/* ---- the database ---- */

static void each_connection(struct relay *r, void (*act)(struct pg *pg)) {
    for (size_t i = 0; i < RELAY_CONNECTIONS; i++)
        act(r->connections[i]);
}

static bool are_ready(const struct relay *r) {
    for (size_t i = 0; i < RELAY_CONNECTIONS; i++)
        if (pg_state(r->connections[i]) != PG_READY)
            return false;
    return true;
}

/* One connection's trouble is everybody's: all are closed, and memory is compared with the ledger afterwards. */
static void lose_database(struct relay *r, const struct fault *f, int64_t now) {
    if (strcmp(f->code, LEDGER_FENCED) == 0 && r->state != RELAY_STANDBY) {
        r->ledger.is_fenced = true;
    } else if (!r->database_lost || strcmp(r->database_trouble, f->text) != 0) {
        log_event(f->class == FAULT_FATAL ? LOG_ERROR : LOG_WARN, "database trouble, trying again",
                  log_str("code", f->code), log_str("error", f->text), LOG_END);
        snprintf(r->database_trouble, sizeof r->database_trouble, "%s", f->text);
        r->database_lost = true;
    }
    each_connection(r, pg_close);
    if (strcmp(f->code, PG_TIMED_OUT) == 0)
        claim_slow_down(&r->claim);
    claim_reset(&r->claim);
    lease_reconnect(&r->lease);
    sweep_reset(&r->sweep);
    /* A full load that was cut short has brought nothing into memory: it is a full load that is wanted again. */
    r->load_in_full = r->load_in_full || (r->load.state == LOAD_BUSY && r->load.is_full);
    load_reset(&r->load);
    r->must_load = true;
    r->reconnect_wait_us = r->reconnect_wait_us == 0 ? RECONNECT_FIRST_US : r->reconnect_wait_us * 2;
    if (r->reconnect_wait_us > RECONNECT_MOST_US)
        r->reconnect_wait_us = RECONNECT_MOST_US;
    r->lost_us = now;
    r->reconnect_us = now + r->reconnect_wait_us;
}

static void step_connections(struct relay *r, int64_t now) {
    static const struct fault in_recovery = {
        FAULT_RETRY, "recovery", "this server is a standby in recovery: the cursor only moves on a read-write server"};
    static const struct fault silent = {
        FAULT_RETRY, "silent",
        "the server gives no answer for longer than the lease; connecting anew, to whichever leads"};
    const struct fault *trouble = r->claim.saw_recovery || r->load.saw_recovery ? &in_recovery : NULL;
    if (trouble == NULL && lease_gives_up(&r->lease, now))
        trouble = &silent;
    for (size_t i = 0; i < RELAY_CONNECTIONS && trouble == NULL; i++)
        if (pg_state(r->connections[i]) == PG_BROKEN)
            trouble = pg_fault(r->connections[i]);
    if (trouble != NULL) {
        struct fault copy = *trouble;
        relay_parts_remedy(r, &copy);
        lose_database(r, &copy, now);
    }
    if (now >= r->reconnect_us)
        each_connection(r, pg_connect);
}

/* An answer does not prove that the database is back: one with a full disk can be read and not written. A settlement
 * does, or some time without trouble. */
static void note_database(struct relay *r, int64_t now) {
    bool is_quiet = are_ready(r) && now >= r->reconnect_us + QUIET_US;
    if (!r->database_lost || !(is_quiet || r->settle.settled_us > r->lost_us))
        return;
    log_event(LOG_INFO, "database is back", LOG_END);
    r->database_lost = false;
    r->reconnect_wait_us = 0;
}

/* ---- steps ---- */

static void step_start(struct relay *r, int64_t now) {
    (void)now;
    if (r->stopping || r->broker_answered)
        enter(r, r->stopping ? RELAY_STOPPED : RELAY_STANDBY);
}

static void step_standby(struct relay *r, int64_t now) {
    bool is_news;
    lease_step(&r->lease, now);
    if (r->stopping) {
        enter(r, r->lease.held ? RELAY_RELEASE : RELAY_STOPPED);
        return;
    }
    const char *leader = lease_leader(&r->lease, &is_news);
    if (is_news)
        log_event(LOG_INFO, "standby: another relay leads", log_str("relay", r->lease.relay), log_str("leader", leader),
                  LOG_END);
    if (!r->lease.held)
        return;
    log_event(LOG_INFO, "leading", log_str("relay", r->lease.relay), log_int("epoch", r->lease.epoch),
              log_str("delivery", r->kafka_options.transactional_id != NULL ? "exactly_once" : "at_least_once"),
              LOG_END);
    relay_producer_begin(r); /* it is loaded once the other connections are there, too */
    enter(r, RELAY_LOAD);
}

static void step_down(struct relay *r) {
    log_event(LOG_WARN, "another relay took over: stepping down", log_int("epoch", r->lease.epoch), LOG_END);
    lease_forget(&r->lease);
    overdue_clear(&r->publisher.overdue);
    relay_producer_renew(r);
    enter(r, RELAY_STANDBY);
}

/* Exactly-once mode: one transaction after the other; a broken one takes its producer with it. */
static void step_transaction(struct relay *r, int64_t now) {
    bool is_loaded = r->state != RELAY_LOAD && !r->must_load;
    bool can_begin = is_loaded && !claim_is_retrying(&r->claim) && !claim_wants_parked(&r->claim, now);
    txn_step(&r->txn, can_begin, claim_is_bringing(&r->claim), now);
}

/* What holds in every state that has the lease. False when the state has changed. */
static bool step_leader(struct relay *r, int64_t now) {
    lease_step(&r->lease, now);
    if (r->lease.lost || r->ledger.is_fenced) {
        step_down(r);
        return false;
    }
    if (relay_producer_has_failed(r, now)) {
        if (!relay_producer_is_due(r, now))
            return false;
        relay_producer_begin_anew(r);
    }
    if (r->publisher.must_look_up) {
        log_event(LOG_INFO, "parked messages may have arrived: they are looked up before they are sent again", LOG_END);
        relay_producer_begin_anew(r);
    }
    if (r->publisher.stuck != NULL) {
        log_event(LOG_WARN, "a topic vanished and the producer keeps its messages: it is made anew",
                  log_str("topic", r->publisher.stuck->name), LOG_END);
        relay_producer_begin_anew(r);
    }
    if (lease_is_ours(&r->lease, now)) {
        overdue_step(&r->publisher, &r->ledger, now);
        step_transaction(r, now);
        publish_step(&r->publisher);
    }
    if (!are_ready(r) || !lease_is_ours(&r->lease, now) || r->txn.state == TXN_INIT)
        return false;
    if (!r->must_load)
        return true;
    r->must_load = false;
    load_start(&r->load, r->load_in_full);
    r->load_in_full = false;
    enter(r, RELAY_LOAD);
    return false;
}

static void step_load(struct relay *r, int64_t now) {
    if (r->stopping && r->load.is_full && r->load.state == LOAD_BUSY) {
        enter(r, RELAY_RELEASE); /* nothing was sent yet: the next leader loads it as well */
        return;
    }
    if (!step_leader(r, now))
        return;
    load_step(&r->load, now);
    if (r->load.state == LOAD_STALE) {
        log_event(LOG_ERROR, "the database lost what it had confirmed, or its answer; loading all of it again",
                  LOG_END);
        relay_producer_begin_anew(r);
    } else if (r->load.state == LOAD_REFUSED) {
        r->refusal = r->identity.fault;
        enter(r, RELAY_RELEASE);
    } else if (r->load.state == LOAD_DONE) {
        enter(r, r->stopping ? RELAY_DRAIN : RELAY_LEAD);
    }
}

static void step_lead(struct relay *r, int64_t now) {
    if (r->stopping) {
        log_event(LOG_INFO, "stopping: waiting for acknowledgments", log_int("open", (int64_t)r->ledger.open.rows),
                  LOG_END);
        claim_stop(&r->claim);
        enter(r, RELAY_DRAIN);
        return;
    }
    if (!step_leader(r, now))
        return;
    settle_step(&r->settle, !claim_is_retrying(&r->claim));
    claim_step(&r->claim, now);
    sweep_step(&r->sweep, now);
    publish_step(&r->publisher);
}

/* The deadline is over: no report is taken any more, so that what is recorded now stays true. */
static void silence(struct relay *r) {
    r->silenced = true;
    relay_producer_close(r, publish_silence(&r->publisher), (struct batch_queue){0});
}

/* Records what came, and that the rest is unknown. librdkafka has let go of the rows. */
static void give_up(struct relay *r) {
    size_t rows = 0;
    for (struct batch *b = r->ledger.open.first; b != NULL; b = b->next) {
        rows += b->open;
        batch_give_up(b);
    }
    log_event(LOG_WARN, "no acknowledgment before the deadline: these stay requesting", log_int("rows", (int64_t)rows),
              LOG_END);
    r->gave_up = true;
}

static void step_drain(struct relay *r, int64_t now) {
    int64_t deadline = r->entered_us + r->config->shutdown_flush_ms * 1000;
    bool is_over = now >= deadline + GIVE_UP_US;
    bool is_settled = claim_is_idle(&r->claim) && r->ledger.open.count == 0;
    if (!r->silenced) {
        bool goes_on = step_leader(r, now);
        if (r->state != RELAY_DRAIN)
            return;
        if (goes_on)
            settle_step(&r->settle, !claim_is_retrying(&r->claim));
        if ((now >= deadline && claim_is_idle(&r->claim)) || (is_settled && r->ledger.kept.count > 0)) {
            if (r->publisher.is_transactional) {
                enter(r, RELAY_RELEASE); /* what is not committed never was; the next leader sees what is */
                return;
            }
            silence(r);
        }
    } else {
        lease_step(&r->lease, now);
        if (!r->gave_up && r->closing == 0)
            give_up(r);
        if (r->gave_up && lease_is_ours(&r->lease, now) && !r->must_load)
            settle_step(&r->settle, true);
    }
    if (is_over || (is_settled && (r->ledger.kept.count == 0 || r->gave_up)))
        enter(r, RELAY_RELEASE);
}

static void step_release(struct relay *r, int64_t now) {
    if (r->lease.held && !r->lease.asked && pg_state(r->lease.pg) == PG_READY)
        lease_release(&r->lease);
    bool is_sent = !r->lease.held && pg_pending(r->lease.pg) == 0;
    if (pg_state(r->lease.pg) != PG_READY || is_sent || now >= r->entered_us + RELEASE_WAIT_US)
        enter(r, RELAY_STOPPED);
}

/* ---- signals ---- */

static void on_signal(void *context, uint32_t events) {
    struct relay *r = context;
    struct signalfd_siginfo info;
    (void)events;
    while (read(r->signal_io.fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (r->stopping) {
            log_progress(NULL);
            _exit(128 + (int)info.ssi_signo);
        }
        log_event(LOG_INFO, "signal received", log_int("signal", info.ssi_signo), LOG_END);
        r->stopping = true;
        r->stopping_us = loop_now_us();
    }
}

static void watch_signals(struct relay *r) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        abort();
    loop_watch(r->loop, &r->signal_io, fd, EPOLLIN, on_signal, r);
}

/* ---- the loop ---- */

/* Only who can act asks to be woken: a time that has passed would make the loop spin. */
static int64_t wake_us(const struct relay *r, int64_t now) {
    bool leads = r->state == RELAY_LOAD || r->state == RELAY_LEAD || r->state == RELAY_DRAIN;
    bool rests = r->producer_renew_us > now; /* until another producer is due */
    bool publishes = r->publisher.kafka != NULL && leads && !rests && lease_is_ours(&r->lease, now);
    bool claims = r->state == RELAY_LEAD && publishes && are_ready(r);
    bool renews = r->state != RELAY_START && r->state != RELAY_RELEASE;
    const int64_t wakes[] = {
        renews ? lease_wake_us(&r->lease) : INT64_MAX,       publishes ? publish_wake_us(&r->publisher) : INT64_MAX,
        claims ? claim_wake_us(&r->claim) : INT64_MAX,       publishes ? txn_wake_us(&r->txn) : INT64_MAX,
        r->reconnect_us > now ? r->reconnect_us : INT64_MAX, rests ? r->producer_renew_us : INT64_MAX};
    int64_t wake = now + (r->state == RELAY_DRAIN || r->state == RELAY_RELEASE ? 20000 : 200000);
    for (size_t i = 0; i < sizeof wakes / sizeof *wakes; i++)
        wake = wakes[i] < wake ? wakes[i] : wake;
    return wake;
}

static void run(struct relay *r) {
    while (r->state != RELAY_STOPPED && r->end.class == FAULT_NONE) {
        int64_t now = loop_now_us();
        enum relay_state before = r->state;
        step_connections(r, now);
        states[r->state].step(r, now);
        if (r->stopping && now >= r->stopping_us + r->config->shutdown_flush_ms * 1000 + 2 * GIVE_UP_US)
            enter(r, RELAY_STOPPED); /* whatever it waits for: a stop comes to an end */
        note_database(r, now);
        relay_broker_note(r);
        relay_condition_note(r, now);
        relay_parts_progress(r, now);
        loop_turn(r->loop, r->state == before ? wake_us(r, now) : now); /* a new state takes its first step at once */
    }
}

bool relay_run(const struct config *config, struct fault *f) {
    struct relay *r = relay_parts_new(config);
    watch_signals(r);
    if (relay_producer_open(r, &r->end)) {
        relay_broker_await(r);
        run(r);
    }
    log_progress(NULL);
    if (r->end.class == FAULT_NONE)
        r->end = r->refusal;
    if (r->end.class == FAULT_NONE)
        log_event(LOG_INFO, "stopped", log_int("dispatched", (int64_t)r->settle.settled_rows), LOG_END);
    else if (f != NULL)
        *f = r->end;
    bool is_good = r->end.class == FAULT_NONE;
    relay_producer_forget(r);
    while (r->closing > 0 || r->reconcile.outstanding > 0)
        loop_turn(r->loop, loop_now_us() + 1000000);
    relay_parts_free(r);
    return is_good;
}
