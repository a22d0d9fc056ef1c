/* test_lease.c: the local deadline always lies before the remote expiry, however long questions and answers take. */
#include "denpyo/lease.h"

#include <criterion/criterion.h>

#include "denpyo/loop.h"
#include "random.h"

enum { LEASE_MS = 10000, EPOCH = 7, ROUNDS = 100000 };

/* ---- a database and a clock that the tests turn; they take the place of pg.c, statement.c and loop.c ---- */

static struct {
    int64_t now_us;
    enum pg_state state;
    pg_done_fn done; /* of the statement that waits for its answer */
    enum statement sent;
    int rows;
    int64_t numbers[2];
    const char *text;
} world;

int64_t loop_now_us(void) {
    return world.now_us;
}

enum pg_state pg_state(const struct pg *pg) {
    (void)pg;
    return world.state;
}

void pg_sync(struct pg *pg) {
    (void)pg;
}

int pg_rows(const struct pg_result *r) {
    (void)r;
    return world.rows;
}

int64_t pg_int(const struct pg_result *r, int row, int column) {
    (void)r, (void)row;
    return world.numbers[column];
}

const char *pg_text(const struct pg_result *r, int row, int column) {
    (void)r, (void)row, (void)column;
    return world.text;
}

void pg_add_text(struct pg_call *call, const char *text) {
    (void)call, (void)text;
}

void pg_add_int(struct pg_call *call, int64_t number) {
    (void)call, (void)number;
}

void statements_send(const struct statements *s, struct pg *pg, enum statement which, const struct pg_call *call,
                     pg_done_fn done, void *context) {
    (void)s, (void)pg, (void)call, (void)context;
    if (done == NULL)
        return; /* what frames a transaction */
    world.sent = which;
    world.done = done;
}

static void answer(struct lease *l, int rows, int64_t first, int64_t second) {
    pg_done_fn done = world.done;
    cr_assert_not_null(done);
    world.done = NULL;
    world.rows = rows;
    world.numbers[0] = first;
    world.numbers[1] = second;
    done(l, NULL);
}

static void begin(struct lease *l) {
    world.now_us = 1000000;
    world.state = PG_READY;
    world.text = "another";
    lease_init(l, NULL, NULL, "default", LEASE_MS);
}

/* Looks and takes; the take is sent now and comes to the database and back in so many microseconds. Returns when the
 * lease ends by the database's clock (which is ours here). */
static int64_t take(struct lease *l, int64_t there_us, int64_t back_us) {
    lease_step(l, world.now_us);
    cr_assert_eq(world.sent, STATEMENT_LEASE_LOOK);
    answer(l, 1, EPOCH - 1, 1);
    cr_assert_eq(world.sent, STATEMENT_LEASE_TAKE);
    world.now_us += there_us;
    int64_t expires_us = world.now_us + LEASE_MS * 1000;
    world.now_us += back_us;
    answer(l, 1, EPOCH, 0);
    return expires_us;
}

Test(lease, the_local_deadline_comes_a_tenth_of_the_lease_before_the_remote_one) {
    struct lease l;
    begin(&l);
    int64_t expires_us = take(&l, 0, 0);
    cr_assert(l.held && l.epoch == EPOCH);
    cr_assert_eq(expires_us - l.deadline_us, LEASE_MS * 100);
    cr_assert(lease_is_ours(&l, l.deadline_us - 1) && !lease_is_ours(&l, l.deadline_us));
}

Test(lease, the_deadline_counts_from_before_the_question_whatever_the_answer_took) {
    uint64_t random = 1;
    struct lease l;
    begin(&l);
    int64_t expires_us = take(&l, 0, 0);
    for (int i = 0; i < ROUNDS && lease_is_ours(&l, l.next_us); i++) {
        world.now_us = world.now_us > l.next_us ? world.now_us : l.next_us;
        lease_step(&l, world.now_us);
        cr_assert_eq(world.sent, STATEMENT_LEASE_RENEW);
        cr_assert(world.done != NULL && l.asked);
        int64_t sent_us = world.now_us;
        world.now_us += (int64_t)random_below(&random, 4000000);
        int64_t renewed_us = world.now_us + LEASE_MS * 1000;
        cr_assert_lt(l.deadline_us, expires_us, "before the answer");
        world.now_us += (int64_t)random_below(&random, 4000000);
        answer(&l, 1, EPOCH, 0);
        expires_us = renewed_us;
        cr_assert_eq(l.deadline_us, sent_us + LEASE_MS * 900);
        cr_assert_leq(l.deadline_us, expires_us - LEASE_MS * 100);
    }
    cr_assert_gt(l.deadline_us, INT64_C(100000000), "it was renewed many times");
}

Test(lease, an_answer_that_comes_after_the_deadline_gives_no_more_than_the_question_asked_for) {
    struct lease l;
    begin(&l);
    take(&l, 0, LEASE_MS * 950);
    cr_assert(l.held && !lease_is_ours(&l, world.now_us));
}

Test(lease, it_is_renewed_three_times_before_it_ends_and_never_twice_at_once) {
    struct lease l;
    begin(&l);
    take(&l, 0, 0);
    world.done = NULL;
    lease_step(&l, world.now_us + LEASE_MS * 1000 / 3 - 1);
    cr_assert_null(world.done, "not yet");
    lease_step(&l, world.now_us + LEASE_MS * 1000 / 3);
    cr_assert_not_null(world.done);
    world.done = NULL;
    lease_step(&l, world.now_us + LEASE_MS * 2000 / 3);
    cr_assert_null(world.done, "one question is on its way");
    lease_reconnect(&l);
    lease_step(&l, world.now_us + LEASE_MS * 2000 / 3);
    cr_assert(world.done != NULL && world.sent == STATEMENT_LEASE_RENEW, "a lost connection's answer never comes");
}

Test(lease, whoever_is_no_longer_on_record_has_lost_it_at_once) {
    struct lease l;
    begin(&l);
    take(&l, 0, 0);
    world.now_us = l.next_us;
    lease_step(&l, world.now_us);
    answer(&l, 0, 0, 0);
    cr_assert(l.lost && !l.held && !lease_is_ours(&l, world.now_us));
    world.done = NULL;
    lease_step(&l, world.now_us + LEASE_MS * 1000);
    cr_assert_null(world.done, "it steps down before it asks for another");
}

Test(lease, a_standby_looks_four_times_a_second_and_names_the_leader_once) {
    struct lease l;
    bool is_news;
    begin(&l);
    lease_step(&l, world.now_us);
    answer(&l, 1, EPOCH, 0);
    cr_assert_str_eq(lease_leader(&l, &is_news), "another");
    cr_assert(is_news && !l.held);
    lease_leader(&l, &is_news);
    cr_assert_not(is_news);
    cr_assert_eq(lease_wake_us(&l), world.now_us + 250000);
}

Test(lease, a_question_is_given_up_after_a_lease_and_the_next_one_after_two) {
    struct lease l;
    begin(&l);
    world.now_us = INT64_C(100) * LEASE_MS * 1000; /* the machine has run for long */
    for (int held = 0; held <= 1; held++) {
        if (held == 1) {
            take(&l, 0, 0);
            world.now_us = l.next_us;
        }
        for (int64_t leases = 1; leases <= 2; leases++) {
            lease_step(&l, world.now_us);
            cr_assert(l.asked && !lease_gives_up(&l, world.now_us));
            world.now_us += leases * LEASE_MS * 1000 - 1;
            cr_assert_not(lease_gives_up(&l, world.now_us));
            world.now_us++;
            cr_assert(lease_gives_up(&l, world.now_us));
            lease_reconnect(&l);
        }
    }
}

Test(lease, what_keeps_the_leader_from_its_work_is_told_at_once_and_each_change_once) {
    struct lease l;
    begin(&l);
    take(&l, 0, 0);
    lease_describe(&l, NULL, NULL);
    lease_step(&l, world.now_us);
    cr_assert_not(l.asked, "all is well, as everybody knows");
    lease_describe(&l, "no broker", "why");
    lease_step(&l, world.now_us);
    cr_assert(l.asked && world.sent == STATEMENT_LEASE_RENEW);
    answer(&l, 1, EPOCH, 0);
    lease_describe(&l, "no broker", "why");
    lease_step(&l, world.now_us);
    cr_assert_not(l.asked);
}
