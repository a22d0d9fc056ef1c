/* test_txn.c: when a transaction that is complete is committed, and when it waits for what is being claimed. */
#include "denpyo/txn.h"

#include "gate.h"

enum { LARGE = 1000, MOST = 3500, SMALL = 10, BATCHES = 6 };
#define SOON_US 30000  /* a transaction waits so long for one batch */
#define LONG_US 500000 /* and no more after so long */
#define BEGUN_US INT64_C(1000000)

/* An open transaction of a producer without a broker. What is sent and acknowledged, and the time, is for the test to
 * say; the commit fails, which nobody hears of. */
struct desk {
    struct gate gate;
    struct ledger ledger;
    struct kafka_options options;
    struct txn txn;
    struct row rows[BATCHES][LARGE];
    struct batch batches[BATCHES];
    size_t count;
};

static struct desk *desk_open(void) {
    struct desk *d = calloc(1, sizeof *d);
    cr_assert_not_null(d);
    gate_open(&d->gate);
    gate_ready(&d->gate, LARGE);
    d->options.transactional_id = "id";
    txn_init(&d->txn, &d->ledger, &d->gate.p, d->gate.worker, &d->options, MOST);
    d->gate.p.is_transactional = d->gate.p.is_open = true;
    d->txn.state = TXN_OPEN;
    d->txn.begun_us = BEGUN_US;
    return d;
}

static void desk_close(struct desk *d) {
    txn_forget(&d->txn);
    while (d->txn.is_calling)
        loop_turn(d->gate.loop, INT64_MAX);
    gate_close(&d->gate);
    free(d);
}

/* A claim is committed. */
static void bring(struct desk *d, size_t rows) {
    struct batch *b = &d->batches[d->count];
    *b = (struct batch){.id = (int64_t)++d->count, .count = rows, .open = rows, .rows = d->rows[d->count - 1]};
    for (size_t i = 0; i < rows; i++) {
        b->rows[i] = d->gate.rows[0];
        b->rows[i].id = b->id * LARGE + (int64_t)i;
        b->rows[i].batch = b;
    }
    batch_queue_push(&d->ledger.open, b);
}

/* All that is in the lanes was sent, and the broker has it. */
static void acknowledge(struct desk *d) {
    d->gate.p.acknowledged = d->txn.rows;
}

/* Whether it is still open after a step so long after its begin. */
static bool is_open_after(struct desk *d, int64_t us, bool more_comes) {
    txn_step(&d->txn, true, more_comes, BEGUN_US + us);
    return d->txn.state == TXN_OPEN;
}

static struct desk *open_complete(size_t rows) {
    struct desk *d = desk_open();
    bring(d, rows);
    cr_assert(is_open_after(d, 0, false), "nothing is acknowledged yet");
    acknowledge(d);
    return d;
}

Test(txn, it_waits_for_a_batch_that_comes_and_is_woken_when_none_does) {
    struct desk *d = open_complete(LARGE);
    cr_assert(is_open_after(d, 5000, true));
    cr_assert_eq(txn_wake_us(&d->txn), BEGUN_US + 5000 + SOON_US);
    cr_assert(is_open_after(d, 5000 + SOON_US - 1, true));
    cr_assert_eq(txn_wake_us(&d->txn), BEGUN_US + 5000 + SOON_US, "the wait does not begin anew with each look");
    cr_assert_not(is_open_after(d, 5000 + SOON_US, true));
    cr_assert_eq(txn_wake_us(&d->txn), INT64_MAX, "a time that has passed would make the loop spin");
    desk_close(d);
}

Test(txn, the_batch_that_it_waited_for_joins_and_it_waits_for_the_next) {
    struct desk *d = open_complete(LARGE);
    cr_assert(is_open_after(d, 5000, true));
    bring(d, LARGE);
    cr_assert(is_open_after(d, 20000, true));
    cr_assert(d->txn.routed_id == 2 && d->txn.rows == (size_t)2 * LARGE && txn_wake_us(&d->txn) == INT64_MAX);
    acknowledge(d);
    cr_assert(is_open_after(d, 34000, true));
    cr_assert_eq(txn_wake_us(&d->txn), BEGUN_US + 34000 + SOON_US);
    cr_assert_not(is_open_after(d, 40000, false), "none comes any more");
    desk_close(d);
}

Test(txn, it_waits_for_nothing_that_it_would_not_take) {
    struct desk *d = open_complete(SMALL);
    cr_assert_not(is_open_after(d, 5000, true), "small batches are not worth a wait");
    desk_close(d);
    d = open_complete(LARGE);
    bring(d, LARGE);
    bring(d, LARGE);
    cr_assert(is_open_after(d, 0, true));
    acknowledge(d);
    cr_assert_not(is_open_after(d, 5000, true), "there is no room for another one");
    desk_close(d);
}

/* One that was claimed meanwhile and did not join says that no later one will. */
Test(txn, it_does_not_wait_for_those_behind_one_that_goes_into_the_next) {
    struct desk *d = open_complete(LARGE);
    bring(d, SMALL);
    cr_assert_not(is_open_after(d, 5000, true));
    cr_assert_eq(d->txn.routed_id, 1);
    desk_close(d);
}

Test(txn, what_it_has_sent_does_not_wait_for_ever_while_a_slow_database_brings_one_batch_after_the_other) {
    struct desk *d = open_complete(LARGE);
    cr_assert(is_open_after(d, LONG_US - 10000, true));
    cr_assert_leq(txn_wake_us(&d->txn), BEGUN_US + LONG_US);
    cr_assert_not(is_open_after(d, LONG_US, true));
    desk_close(d);
}

Test(txn, when_it_fails_while_it_waits_it_is_aborted) {
    struct desk *d = open_complete(LARGE);
    cr_assert(is_open_after(d, 5000, true));
    d->gate.p.has_failed = true;
    cr_assert_not(is_open_after(d, 6000, true));
    cr_assert_eq(d->txn.state, TXN_ABORT);
    cr_assert_eq(txn_wake_us(&d->txn), INT64_MAX);
    desk_close(d);
}
