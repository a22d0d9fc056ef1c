/* test_outcome.c: what becomes of a group that was refused, by code, by size, and by whether the broker may have it. */
#include <librdkafka/rdkafka.h>

#include "denpyo/outcome_table.h"
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

/* ---- reports that no broker gives on demand ---- */

/* A group of one row came back with this; what the table says of it is what becomes of the row. */
static void expect_of_one(int code, enum outcome becomes) {
    struct gate g;
    gate_open(&g);
    struct lane *lane = refuse(&g, 0, 1, code, false);
    const struct row *row = &g.rows[0];
    switch (becomes) {
    case OUTCOME_WAITS:
        cr_assert(g.p.broken == NULL && row->attempts == 0, "%d", code);
        expect_put_back(lane, 1, 1);
        break;
    case OUTCOME_FATAL:
        cr_assert(g.p.broken != NULL && g.p.broken_code == code && row->attempts == 0, "%d", code);
        expect_put_back(lane, 1, 1);
        break;
    case OUTCOME_TOPIC:
        cr_assert(row->outcome == ROW_FAILED && row->trouble->scope == SCOPE_TOPIC, "%d", code);
        cr_assert(g.topic->hold != NULL && g.topic->asked, "%d: the topic is looked up again", code);
        break;
    case OUTCOME_DISPATCHED:
    case OUTCOME_UNKNOWN:
    case OUTCOME_FAILED:
    case OUTCOME_REJECTED:
    case OUTCOME_RELAY:
        cr_assert_fail("not asked for here");
    }
    gate_close(&g);
}

Test(outcome, what_the_client_gives_back_for_its_own_reasons_is_nobodys_attempt) {
    expect_of_one(KAFKA_CODE_TIMED_OUT_MESSAGE, OUTCOME_WAITS);
    expect_of_one(KAFKA_CODE_PURGE_QUEUE, OUTCOME_WAITS);
    expect_of_one(KAFKA_CODE_PURGE_INFLIGHT, OUTCOME_WAITS);
}

Test(outcome, a_producer_that_failed_with_messages_in_it_is_made_anew) {
    expect_of_one(KAFKA_CODE_FATAL, OUTCOME_FATAL);
    expect_of_one(KAFKA_CODE_FENCED, OUTCOME_FATAL);
    expect_of_one(KAFKA_CODE_OUT_OF_ORDER, OUTCOME_FATAL);
}

Test(outcome, a_topic_that_goes_with_messages_queued_for_it_is_in_trouble_as_a_whole) {
    expect_of_one(KAFKA_CODE_UNKNOWN_TOPIC_OR_PARTITION, OUTCOME_TOPIC);
    expect_of_one(KAFKA_CODE_UNKNOWN_TOPIC, OUTCOME_TOPIC);
    expect_of_one(KAFKA_CODE_UNKNOWN_PARTITION, OUTCOME_TOPIC);
    expect_of_one(KAFKA_CODE_DESTROY, OUTCOME_TOPIC);
}

/* ---- refused at once, by a real client ---- */

Test(outcome, what_the_client_refuses_for_any_other_reason_fails_and_holds_its_key) {
    struct gate g;
    gate_open(&g);
    g.topic->in_lanes++;
    cr_assert(outcome_refused(&g.p, &g.rows[0], OTHER));
    cr_assert(g.rows[0].outcome == ROW_FAILED && g.rows[0].trouble->scope == SCOPE_KEY && g.rows[0].attempts == 1);
    cr_assert_not_null(holds_check(&g.p.holds, &g.rows[1]));
    gate_close(&g);
}

static void send_first(struct gate *g) {
    gate_ready(g, 16);
    g->p.lookup_after_us = g->p.ask_again_us = INT64_MAX;
    g->topic->in_lanes++;
    route_row(&g->p, &g->rows[0]);
    publish_step(&g->p);
}

Test(outcome, what_is_larger_than_the_client_sends_is_rejected_at_once) {
    static const char large[2000];
    struct gate g;
    gate_open(&g);
    gate_ready(&g, 16);
    g.p.lookup_after_us = g.p.ask_again_us = INT64_MAX;
    g.rows[0].value = large; /* past route.c, which counts before */
    g.rows[0].value_size = sizeof large;
    g.rows[0].partition = 0;
    g.topic->in_lanes++;
    queue_push(&g.topic->lanes[0].waiting, &g.rows[0]);
    publish_list(&g.p, &g.topic->lanes[0]);
    publish_step(&g.p);
    cr_assert(g.rows[0].outcome == ROW_REJECTED && g.p.in_flight == 0);
    cr_assert_str_eq(g.rows[0].trouble->code, "MSG_SIZE_TOO_LARGE");
    gate_close(&g);
}

Test(outcome, a_producer_that_has_failed_refuses_at_once_and_is_made_anew) {
    struct gate g;
    gate_open(&g);
    rd_kafka_test_fatal_error(kafka_client(g.p.kafka), RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, "a test");
    send_first(&g);
    const char *reason;
    cr_assert(g.p.broken != NULL && g.p.broken_code == KAFKA_CODE_FATAL);
    cr_assert_eq(kafka_fatal(g.p.kafka, &reason), KAFKA_CODE_OUT_OF_ORDER);
    cr_assert(g.rows[0].outcome == ROW_OPEN && g.rows[0].attempts == 0 && g.p.in_flight == 0);
    gate_close(&g);
}

Test(outcome, a_transaction_that_has_failed_refuses_at_once_and_is_aborted) {
    struct gate g;
    struct fault f = {0};
    gate_open(&g);
    struct kafka *other =
        kafka_open(g.loop,
                   &(struct kafka_options){
                       .brokers = "127.0.0.1:1", .transactional_id = "t", .report = publish_report, .context = &g.p},
                   &f);
    cr_assert_not_null(other, "%s", f.text);
    kafka_close(publish_silence(&g.p), g.worker, gate_closed, &g);
    publish_attach(&g.p, other);
    g.p.is_transactional = g.p.is_open = true; /* as the relay believes */
    send_first(&g);
    cr_assert(g.p.has_failed && g.p.broken == NULL);
    cr_assert(g.rows[0].outcome == ROW_OPEN && g.rows[0].attempts == 0 && g.p.in_flight == 0);
    while (!g.is_closed)
        loop_turn(g.loop, INT64_MAX);
    g.is_closed = false;
    gate_close(&g);
}
