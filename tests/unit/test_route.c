/* test_route.c: which lane a row takes, and what closes or keeps a row before it reaches one. */
#include "gate.h"

static void route(struct gate *g, size_t row) {
    g->topic->in_lanes++;
    route_row(&g->p, &g->rows[row]);
}

static void ready(struct gate *g) {
    topic_set_partitions(g->topic, GATE_LANES, 16);
}

Test(route, an_unknown_topic_keeps_its_rows_and_is_looked_up_once) {
    struct gate g;
    gate_open(&g);
    route(&g, 0);
    route(&g, 1);
    cr_assert(g.topic->backlog.count == 2 && g.topic->asked && g.p.wanted == 1);
    gate_close(&g);
}

Test(route, rows_that_come_while_their_topic_is_looked_up_wait_for_that_answer) {
    struct gate g;
    gate_open(&g);
    struct kafka_lookup under_way = {.context = &g.p};
    g.p.lookup = &under_way;
    g.p.lookups_begun = g.topic->look_up = 7;
    route(&g, 0);
    cr_assert(!route_knows(&g.p, g.topic, 0));
    cr_assert(g.topic->backlog.count == 1 && !g.topic->asked && g.p.wanted == 0);
    g.topic->look_up = 6; /* that one came back without an answer for it */
    route(&g, 1);
    cr_assert(g.topic->backlog.count == 2 && g.topic->asked && g.p.wanted == 1);
    g.p.lookup = NULL;
    gate_close(&g);
}

Test(route, one_key_takes_one_lane_in_order_and_retried_rows_go_first) {
    struct gate g;
    gate_open(&g);
    ready(&g);
    struct batch retry = {.is_retry = true, .count = 1, .open = 1};
    route(&g, 1);
    route(&g, 2);
    g.rows[0].batch = &retry;
    route(&g, 0);
    struct lane *lane = &g.topic->lanes[g.rows[0].partition];
    for (int64_t id = 1; id <= 3; id++)
        cr_assert_eq(queue_pop(topic_lane_next(lane))->id, id);
    cr_assert(lane->listed && topic_lane_next(lane) == NULL);
    gate_close(&g);
}

Test(route, an_explicit_partition_is_taken_and_a_missing_one_fails_first) {
    struct gate g;
    gate_open(&g);
    ready(&g);
    for (size_t i = 0; i < 3; i++) {
        g.rows[i].is_explicit = true;
        g.rows[i].partition = i == 0 ? GATE_LANES - 1 : GATE_LANES;
    }
    route(&g, 0);
    cr_assert_eq(g.topic->lanes[GATE_LANES - 1].waiting.first, &g.rows[0]);
    route(&g, 1);
    cr_assert(g.rows[1].outcome == ROW_FAILED && g.topic->asked, "the count may be stale");
    route(&g, 2);
    cr_assert_eq(g.rows[2].outcome, ROW_HELD, "of one key only the first is tried");
    gate_close(&g);
}

/* The backlog's rows are routed again, as when a look-up was answered. */
static void answer(struct gate *g, uint64_t look_up) {
    g->p.lookups_begun = g->topic->answered = look_up;
    g->topic->is_doubted = false;
    struct row_queue rows = g->topic->backlog;
    g->topic->backlog = (struct row_queue){0};
    for (struct row *row; (row = queue_pop(&rows)) != NULL;)
        route_row(&g->p, row);
}

Test(route, a_missing_partition_is_rejected_only_after_a_look_up_that_began_since_it_failed) {
    struct gate g;
    gate_open(&g);
    ready(&g);
    struct batch retry = {.is_retry = true, .count = 2, .open = 2};
    g.p.lookups_begun = g.topic->answered = 7;
    for (size_t i = 1; i <= 2; i++) { /* one that failed, one that waited for it */
        g.rows[i].is_explicit = true;
        g.rows[i].partition = GATE_LANES;
        g.rows[i].batch = &retry;
    }
    g.rows[1].attempts = 1;
    g.rows[2].released_from = 2;
    for (size_t i = 1; i <= 3; i++)
        route(&g, i);
    cr_assert(g.topic->asked && g.topic->backlog.count == 3, "nothing of the topic goes before the answer");
    answer(&g, 7);
    cr_assert(g.rows[1].outcome == ROW_OPEN && g.rows[2].outcome == ROW_OPEN, "an answer from before tells nothing");
    answer(&g, 8);
    for (size_t i = 1; i <= 2; i++) {
        cr_assert_eq(g.rows[i].outcome, ROW_REJECTED);
        cr_assert_str_eq(g.rows[i].trouble->code, "UNKNOWN_PARTITION");
    }
    cr_assert_not_null(topic_lane_next(&g.topic->lanes[g.rows[3].partition]));
    gate_close(&g);
}

Test(route, an_absent_topic_fails_one_row_and_holds_all_others) {
    struct gate g;
    gate_open(&g);
    g.topic->state = TOPIC_ABSENT;
    g.topic->code = 3;
    route(&g, 0);
    g.rows[1].key = "another";
    g.rows[1].key_size = 7;
    route(&g, 1);
    cr_assert(g.rows[0].outcome == ROW_FAILED && g.rows[0].trouble->scope == SCOPE_TOPIC);
    cr_assert(g.rows[1].outcome == ROW_HELD && holds_blocker(&g.rows[1]) == 1);
    cr_assert_eq(g.topic->in_lanes, 0);
    gate_close(&g);
}

Test(route, what_is_too_large_is_rejected_from_its_length) {
    struct gate g;
    gate_open(&g);
    ready(&g);
    g.rows[0].value_size = GATE_MOST_BYTES - 1; /* and one byte of key */
    g.rows[1].value_size = GATE_MOST_BYTES;
    g.rows[2].value_size = -1;
    g.rows[2].value = NULL;
    g.rows[2].oversize = INT64_C(200000000);
    for (size_t i = 0; i < 3; i++)
        route(&g, i);
    cr_assert_eq(g.rows[0].outcome, ROW_OPEN);
    cr_assert_eq(g.rows[1].outcome, ROW_REJECTED);
    cr_assert_eq(g.rows[2].outcome, ROW_REJECTED);
    cr_assert_not_null(strstr(g.rows[2].trouble->text, "200000001 bytes"));
    cr_assert_not_null(strstr(g.rows[2].trouble->text, "1000"));
    gate_close(&g);
}

Test(route, a_delayed_row_is_parked_and_holds_nobody) {
    struct gate g;
    gate_open(&g);
    ready(&g);
    g.rows[0].available_us = INT64_MAX;
    route(&g, 0);
    cr_assert_eq(g.rows[0].outcome, ROW_DELAYED);
    cr_assert_null(holds_check(&g.p.holds, &g.rows[1]));
    gate_close(&g);
}

Test(route, another_partition_count_waits_until_the_lanes_are_empty) {
    struct gate g;
    gate_open(&g);
    ready(&g);
    route(&g, 0);
    g.topic->partitions_seen = 2 * GATE_LANES;
    g.p.changing = 1;
    route(&g, 1);
    cr_assert_eq(g.topic->backlog.first, &g.rows[1]);
    cr_assert_eq(route_waiting(&g.p), 1);
    g.p.lookup_after_us = g.p.ask_again_us = INT64_MAX;
    route_look_up(&g.p);
    cr_assert_eq(g.topic->partitions, GATE_LANES, "a row is in a lane");
    queue_pop(&g.topic->lanes[g.rows[0].partition].waiting);
    g.p.listed_first = g.p.listed_last = NULL;
    publish_close(&g.rows[0], ROW_DISPATCHED);
    cr_assert_eq(route_waiting(&g.p), 0, "for nothing any more");
    route_look_up(&g.p);
    cr_assert(g.topic->partitions == 2 * GATE_LANES && g.p.changing == 0 && g.topic->backlog.count == 0);
    cr_assert_eq(topic_lane_next(&g.topic->lanes[g.rows[1].partition]), &g.topic->lanes[g.rows[1].partition].waiting);
    gate_close(&g);
}
