/* test_publish.c: whose turn it is when more partitions have rows than requests are worth having on their way. */
#include "gate.h"

/* Rows 1 to 4 wait in four lanes, of which two may have a group on its way. */
static void open_with_turns(struct gate *g) {
    gate_open(g);
    gate_ready(g, 16);
    g->p.most_groups = 2;
    for (size_t i = 0; i < GATE_ROWS; i++) {
        g->rows[i].is_explicit = true;
        g->rows[i].partition = (int32_t)i % GATE_LANES;
        g->topic->in_lanes++;
        if (i < GATE_LANES)
            route_row(&g->p, &g->rows[i]);
    }
}

static void acknowledge(struct gate *g, size_t row) {
    publish_report(&g->p, &(struct kafka_report){.opaque = &g->rows[row], .delivery = KAFKA_ACKNOWLEDGED, .offset = 1});
}

Test(publish, a_lane_that_waits_for_its_turn_sends_all_that_gathered_as_one_group) {
    struct gate g;
    open_with_turns(&g);
    publish_step(&g.p);
    cr_assert(g.p.groups == 2 && g.p.listed == 2 && g.p.in_flight == 2);
    for (size_t i = GATE_LANES; i < GATE_ROWS; i++)
        route_row(&g.p, &g.rows[i]);
    publish_step(&g.p);
    cr_assert_eq(g.p.in_flight, 2);
    acknowledge(&g, 0);
    publish_step(&g.p);
    cr_assert(g.p.groups == 1 && g.p.listed == 3, "where many wait, turns are not given out one by one");
    acknowledge(&g, 1);
    publish_step(&g.p);
    for (size_t i = 2; i < GATE_LANES; i++)
        cr_assert(g.topic->lanes[i].group_size == 2 && g.rows[i].is_sent && g.rows[i + GATE_LANES].is_sent);
    cr_assert(g.p.groups == 2 && g.p.listed == 2 && !g.rows[GATE_LANES].is_sent && !g.rows[GATE_LANES + 1].is_sent,
              "first come, first served");
    for (size_t i = 2; i < GATE_ROWS; i++)
        if (g.rows[i].is_sent)
            acknowledge(&g, i);
    publish_step(&g.p);
    cr_assert(g.p.groups == 2 && g.p.listed == 0, "what is left does not wait for more");
    gate_close(&g);
}

Test(publish, groups_that_nobody_answers_keep_the_others_waiting_for_a_moment_only) {
    struct gate g;
    open_with_turns(&g);
    publish_step(&g.p);
    int64_t wake_us = publish_wake_us(&g.p);
    cr_assert(wake_us > loop_now_us() && wake_us < INT64_MAX);
    while (loop_now_us() < wake_us)
        loop_turn(g.loop, wake_us);
    publish_step(&g.p);
    cr_assert(g.p.groups == 4 && g.p.listed == 0 && g.p.in_flight == 4);
    cr_assert_gt(g.p.most_groups, 4);
    for (size_t i = 0; i < GATE_LANES; i++)
        acknowledge(&g, i);
    cr_assert(g.p.groups == 0 && g.p.most_groups <= 64, "no more than without them");
    gate_close(&g);
}

Test(publish, a_free_turn_waits_for_slow_ones_for_a_moment_only) {
    struct gate g;
    open_with_turns(&g);
    publish_step(&g.p);
    acknowledge(&g, 0);
    publish_step(&g.p);
    cr_assert(g.p.groups == 1 && g.p.listed == 2);
    int64_t wake_us = publish_wake_us(&g.p);
    cr_assert(wake_us > loop_now_us() - 1000000 && wake_us < INT64_MAX);
    while (loop_now_us() < wake_us)
        loop_turn(g.loop, wake_us);
    publish_step(&g.p);
    cr_assert(g.p.groups >= 2 && g.p.listed <= 1, "the turn is used although its neighbour is not answered");
    gate_close(&g);
}

Test(publish, nobody_is_woken_for_a_turn_while_nothing_may_be_sent) {
    struct gate g;
    open_with_turns(&g);
    publish_step(&g.p);
    cr_assert_lt(publish_wake_us(&g.p), INT64_MAX);
    g.p.is_transactional = true; /* and no transaction is open */
    int64_t now_us = loop_now_us(), wake_us = publish_wake_us(&g.p);
    cr_assert(wake_us == INT64_MAX || wake_us > now_us + 1000000, "%lld us", (long long)(wake_us - now_us));
    gate_close(&g);
}
