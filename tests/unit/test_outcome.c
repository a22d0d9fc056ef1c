/* test_outcome.c: what becomes of a group that was refused, by code, by size, and by whether the broker may have it. */
#include "gate.h"

enum { TOO_LARGE = 10, UNKNOWN_TOPIC = 3, OTHER = 42 };

/* Rows first … first + count - 1 were one group of the lane, and all of them came back with this code. */
static struct lane *refuse(struct gate *g, size_t first, size_t count, int code, bool is_unsure) {
    if (g->topic->state != TOPIC_READY)
        topic_set_partitions(g->topic, GATE_LANES, 16);
    struct lane *lane = &g->topic->lanes[0];
    for (size_t i = first; i < first + count; i++) {
        g->rows[i].partition = 0;
        g->rows[i].code = code;
        g->rows[i].is_unsure = is_unsure;
        g->topic->in_lanes++;
        queue_push(&lane->refused, &g->rows[i]);
    }
    lane->group_size = count;
    outcome_of_group(&g->p, lane);
    cr_assert_null(lane->refused.first);
    return lane;
}

static void expect_put_back(struct lane *lane, int64_t first, size_t count) {
    cr_assert_eq(lane->urgent.count, count);
    for (const struct row *row = lane->urgent.first; row != NULL; row = row->next)
        cr_assert(row->id == first++ && row->outcome == ROW_OPEN);
}

Test(outcome, a_good_group_doubles_the_next_up_to_the_clients_limit) {
    struct gate g;
    gate_open(&g);
    struct lane *lane = refuse(&g, 0, 0, 0, false);
    cr_assert_eq(lane->limit, 32);
    for (int i = 0; i < 60; i++)
        outcome_of_group(&g.p, lane);
    cr_assert_eq(lane->limit, (size_t)kafka_group_max_messages(g.p.kafka));
    gate_close(&g);
}

Test(outcome, a_refused_group_is_halved_until_the_culprit_is_alone) {
    struct gate g;
    gate_open(&g);
    struct lane *lane = refuse(&g, 0, 5, TOO_LARGE, false);
    cr_assert_eq(lane->limit, 2);
    expect_put_back(lane, 1, 5);
    gate_close(&g);
}

Test(outcome, alone_a_message_that_is_wrong_is_rejected_and_holds_nobody) {
    struct gate g;
    gate_open(&g);
    refuse(&g, 0, 1, TOO_LARGE, false);
    cr_assert_eq(g.rows[0].outcome, ROW_REJECTED);
    cr_assert_eq(g.rows[0].attempts, 1);
    cr_assert_str_eq(g.rows[0].trouble->code, "MSG_SIZE_TOO_LARGE");
    cr_assert_null(holds_check(&g.p.holds, &g.rows[1]));
    cr_assert_eq(g.topic->in_lanes, 0);
    gate_close(&g);
}

Test(outcome, alone_a_message_in_other_trouble_fails_and_holds_its_key) {
    struct gate g;
    gate_open(&g);
    refuse(&g, 0, 1, OTHER, false);
    cr_assert_eq(g.rows[0].outcome, ROW_FAILED);
    cr_assert(g.rows[0].trouble->scope == SCOPE_KEY && g.rows[0].trouble->delay_ms > 0);
    cr_assert_not_null(holds_check(&g.p.holds, &g.rows[1]));
    g.rows[2].key = NULL;
    cr_assert_null(holds_check(&g.p.holds, &g.rows[2]));
    gate_close(&g);
}

Test(outcome, the_topics_trouble_fails_one_and_holds_the_others_of_any_key) {
    struct gate g;
    gate_open(&g);
    struct lane *lane = refuse(&g, 0, 3, UNKNOWN_TOPIC, false);
    cr_assert(g.rows[0].outcome == ROW_FAILED && g.rows[0].trouble->scope == SCOPE_TOPIC);
    expect_put_back(lane, 2, 2);
    g.rows[7].key = NULL;
    cr_assert_eq(holds_check(&g.p.holds, &g.rows[7]), g.topic->hold);
    /* Another lane's report of the same trouble: no second failure. */
    lane->urgent = (struct row_queue){0};
    refuse(&g, 4, 1, UNKNOWN_TOPIC, false);
    cr_assert(g.rows[4].outcome == ROW_HELD && g.rows[4].hold == g.topic->hold && g.rows[4].attempts == 0);
    gate_close(&g);
}

Test(outcome, what_the_broker_may_have_is_never_failed) {
    static const int codes[] = {TOO_LARGE, UNKNOWN_TOPIC, OTHER};
    struct gate g;
    gate_open(&g);
    for (size_t i = 0; i < 3; i++) {
        struct lane *lane = refuse(&g, 0, 2, codes[i], true);
        expect_put_back(lane, 1, 2);
        lane->urgent = (struct row_queue){0};
    }
    gate_close(&g);
}

Test(outcome, a_row_whose_key_waits_is_held_instead_of_failing) {
    struct gate g;
    gate_open(&g);
    refuse(&g, 0, 1, OTHER, false);
    refuse(&g, 1, 1, OTHER, false);
    cr_assert(g.rows[1].outcome == ROW_HELD && holds_blocker(&g.rows[1]) == 1 && g.rows[1].attempts == 0);
    gate_close(&g);
}
