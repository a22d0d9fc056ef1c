/* test_overdue.c: a group that nobody acknowledges leaves its batch, holds its partition, and comes back with its
 * report. */
#include "denpyo/ledger.h"
#include "denpyo/overdue.h"
#include "gate.h"

#define SECOND INT64_C(1000000)

/* Rows 1 … 3 in one group on the wire, 4 and 5 waiting in the same lane, 6 acknowledged elsewhere. */
struct scene {
    struct gate g;
    struct ledger ledger;
    struct lane *lane;
    int64_t start_us;
};

static void report(struct scene *s, size_t row, enum kafka_delivery delivery, int64_t offset) {
    publish_report(&s->g.p, &(struct kafka_report){.opaque = &s->g.rows[row],
                                                   .delivery = delivery,
                                                   .code = delivery == KAFKA_ACKNOWLEDGED ? 0 : -185,
                                                   .partition = s->g.rows[row].partition,
                                                   .offset = offset});
}

static void open_scene(struct scene *s) {
    *s = (struct scene){0};
    gate_open(&s->g);
    overdue_init(&s->g.p.overdue, 10000);
    s->g.p.options.kept_bytes = 1000;
    gate_ready(&s->g, 3);
    s->g.batch.count = s->g.batch.open = 6;
    for (size_t i = 0; i < 6; i++) {
        s->g.rows[i].is_explicit = true;
        s->g.rows[i].partition = i == 5 ? 1 : 0;
        s->g.topic->in_lanes++;
        route_row(&s->g.p, &s->g.rows[i]);
    }
    publish_step(&s->g.p);
    s->lane = &s->g.topic->lanes[0];
    s->start_us = s->lane->sent_us;
    cr_assert(s->lane->group_open == 3 && s->lane->waiting.count == 2 && s->g.p.in_flight == 4);
    report(s, 5, KAFKA_ACKNOWLEDGED, 77);
    batch_queue_push(&s->ledger.open, &s->g.batch);
}

static void answers(struct scene *s, int from_s, int to_s) {
    for (int t = from_s; t <= to_s; t++)
        overdue_note_answer(&s->g.p.overdue, true, s->start_us + t * SECOND);
}

static void step(struct scene *s, int at_s) {
    overdue_step(&s->g.p, &s->ledger, s->start_us + at_s * SECOND);
}

static void close_scene(struct scene *s) {
    gate_close(&s->g);
}

Test(overdue, a_cluster_that_does_not_answer_is_an_outage_and_closes_nothing) {
    struct scene s;
    open_scene(&s);
    step(&s, 60);
    cr_assert_eq(s.g.batch.open, 5, "nobody answered");
    answers(&s, 60, 65);
    step(&s, 66);
    cr_assert_eq(s.g.batch.open, 5, "it has answered for a few seconds only");
    overdue_note_answer(&s.g.p.overdue, false, s.start_us + 90 * SECOND);
    answers(&s, 91, 98);
    step(&s, 99);
    cr_assert_eq(s.g.batch.open, 5, "it was away meanwhile");
    close_scene(&s);
}

Test(overdue, an_overdue_group_leaves_its_batch_and_holds_the_partition) {
    struct scene s;
    open_scene(&s);
    answers(&s, 0, 12);
    step(&s, 9);
    cr_assert_eq(s.g.batch.open, 5, "it may still come");
    step(&s, 12);
    cr_assert_eq(s.g.batch.open, 0);
    for (size_t i = 0; i < 3; i++)
        cr_assert(s.g.rows[i].outcome == ROW_UNSURE && s.g.rows[i].is_overdue);
    cr_assert(s.g.rows[3].outcome == ROW_HELD && s.g.rows[4].outcome == ROW_HELD);
    cr_assert(holds_blocker(&s.g.rows[3]) == 1 && s.g.rows[3].hold->scope == SCOPE_PARTITION);
    cr_assert(s.g.topic->in_lanes == 3 && s.g.batch.on_wire == 3, "the lane and the memory stay");
    /* What comes to the dead partition from now on is held at once, whatever its id; other partitions go on. */
    struct batch next = {.id = 2, .count = 2, .open = 2};
    s.g.rows[6].batch = s.g.rows[7].batch = &next;
    s.g.rows[6].is_explicit = s.g.rows[7].is_explicit = true;
    s.g.rows[6].partition = 0;
    s.g.rows[6].id = -5;
    s.g.rows[7].partition = 1;
    s.g.topic->in_lanes += 2;
    route_row(&s.g.p, &s.g.rows[6]);
    route_row(&s.g.p, &s.g.rows[7]);
    cr_assert(s.g.rows[6].outcome == ROW_HELD && s.g.rows[7].outcome == ROW_OPEN);
    close_scene(&s);
}

Test(overdue, a_row_without_a_key_passes_over_dead_partitions) {
    struct scene s;
    struct batch next = {.id = 2, .count = 1, .open = 1};
    struct row *row = &s.g.rows[6];
    open_scene(&s);
    answers(&s, 0, 12);
    step(&s, 12);
    row->batch = &next;
    row->key = NULL;
    row->key_size = -1;
    s.g.topic->in_lanes++;
    s.g.topic->next_keyless = 0;
    route_row(&s.g.p, row);
    cr_assert(row->outcome == ROW_OPEN && row->partition == 1);
    close_scene(&s);
}

Test(overdue, a_report_counts_once_its_batch_is_settled_and_takes_the_place_of_a_look_up) {
    struct scene s;
    open_scene(&s);
    answers(&s, 0, 12);
    step(&s, 12);
    report(&s, 0, KAFKA_ACKNOWLEDGED, 100);
    report(&s, 1, KAFKA_NOT_PERSISTED, -1);
    cr_assert(!overdue_has_results(&s.g.p.overdue, s.start_us), "there is no parked row yet to claim");
    cr_assert(overdue_settled(&s.g.p.overdue, &s.g.batch), "row 3 is still on the wire");
    report(&s, 2, KAFKA_MAYBE_PERSISTED, -1);
    cr_assert(!s.lane->is_overdue && s.lane->group_open == 0 && s.g.batch.on_wire == 0);
    struct pgarray wanted = {0};
    pgarray_begin(&wanted, PGARRAY_INT8, 4, 8);
    cr_assert(overdue_has_results(&s.g.p.overdue, s.start_us));
    overdue_list(&s.g.p.overdue, &wanted);
    cr_assert_eq(wanted.count, 3);
    struct row rows[3];
    struct batch retry = {.id = 2, .is_retry = true, .count = 3, .open = 3, .rows = rows};
    for (size_t i = 0; i < 3; i++) {
        rows[i] = (struct row){.id = (int64_t)i + 1,
                               .batch = &retry,
                               .topic = s.g.topic,
                               .key = "k",
                               .key_size = 1,
                               .partition = -1,
                               .is_unsure = true};
        overdue_claimed(&s.g.p, &rows[i]);
    }
    cr_assert(rows[0].outcome == ROW_DISPATCHED && rows[0].offset == 100 && rows[0].partition == 0);
    cr_assert(rows[1].outcome == ROW_OPEN && !rows[1].is_unsure, "to be sent again, nothing is in doubt");
    cr_assert(rows[2].outcome == ROW_OPEN && rows[2].is_unsure, "to be looked up");
    cr_assert(!overdue_has_results(&s.g.p.overdue, s.start_us));
    cr_assert_not(s.g.topic->partition_holds->blocked, "row 1 stood for the partition");
    pgarray_free(&wanted);
    close_scene(&s);
}

/* A committed claim of one of the rows 1 … 3, whose results are asked for. */
static void claim(struct scene *s, struct batch *retry, struct row *row, int64_t id) {
    struct pgarray wanted = {0};
    pgarray_begin(&wanted, PGARRAY_INT8, 4, 8);
    overdue_list(&s->g.p.overdue, &wanted);
    pgarray_free(&wanted);
    *row = s->g.rows[id - 1];
    row->batch = retry;
    row->outcome = ROW_OPEN;
    row->trouble = NULL;
    row->hold = NULL;
    row->is_unsure = true;
    row->is_overdue = row->is_sent = row->is_reported = false;
    *retry = (struct batch){.id = 2, .is_retry = true, .count = 1, .open = 1, .rows = row};
    overdue_claimed(&s->g.p, row);
}

static void send_fresh(struct scene *s, struct batch *fresh) {
    struct row *row = &s->g.rows[6];
    *fresh = (struct batch){.id = 3, .count = 1, .open = 1, .rows = row};
    row->batch = fresh;
    row->is_explicit = true;
    row->partition = 0;
    publish_batch(&s->g.p, fresh);
    publish_step(&s->g.p);
}

Test(overdue, newer_rows_wait_until_all_of_a_group_is_claimed_though_a_page_takes_only_some) {
    struct scene s;
    struct batch retry, fresh;
    struct row row;
    open_scene(&s);
    s.g.rows[3].is_explicit = s.g.rows[4].is_explicit = false; /* nothing else waits in the lane */
    s.lane->waiting = (struct row_queue){0};
    s.g.topic->in_lanes -= 2;
    answers(&s, 0, 12);
    step(&s, 12);
    for (size_t i = 0; i < 3; i++)
        report(&s, i, i < 2 ? KAFKA_ACKNOWLEDGED : KAFKA_NOT_PERSISTED, 100 + (int64_t)i);
    overdue_settled(&s.g.p.overdue, &s.g.batch);
    claim(&s, &retry, &row, 1);
    cr_assert(row.outcome == ROW_DISPATCHED && !s.g.topic->partition_holds->blocked);
    send_fresh(&s, &fresh);
    cr_assert_eq(s.g.rows[6].outcome, ROW_HELD, "row 3 is to be sent before");
    claim(&s, &retry, &row, 2);
    claim(&s, &retry, &row, 3);
    cr_assert(row.outcome == ROW_OPEN && !row.is_unsure);
    holds_settle(&s.g.p.holds, &s.g.rows[6], 0);
    holds_take(&s.g.p.holds, &(struct row){.topic = s.g.topic, .released_from = 1, .released_scope = SCOPE_PARTITION});
    cr_assert_null(s.g.topic->partition_holds, "all have come back");
    close_scene(&s);
}

Test(overdue, a_row_that_fails_for_its_own_sake_when_its_partition_is_back_holds_its_key_alone) {
    struct scene s;
    struct batch retry;
    struct row row;
    open_scene(&s);
    answers(&s, 0, 12);
    step(&s, 12);
    for (size_t i = 0; i < 3; i++)
        report(&s, i, i == 0 ? KAFKA_NOT_PERSISTED : KAFKA_ACKNOWLEDGED, -1);
    overdue_settled(&s.g.p.overdue, &s.g.batch);
    claim(&s, &retry, &row, 1);
    s.g.topic->in_lanes++;
    outcome_fail(&s.g.p, &row, SCOPE_KEY, "CODE", "its own trouble");
    cr_assert(row.outcome == ROW_FAILED && s.g.topic->key_holds == 1);
    cr_assert_not(s.g.topic->partition_holds->blocked);
    free(row.trouble);
    close_scene(&s);
}

Test(overdue, a_group_of_which_only_some_rows_have_a_report_keeps_its_lane) {
    struct scene s;
    struct batch retry, fresh;
    struct row row;
    open_scene(&s);
    answers(&s, 0, 12);
    step(&s, 12);
    report(&s, 0, KAFKA_NOT_PERSISTED, -1);
    overdue_settled(&s.g.p.overdue, &s.g.batch);
    claim(&s, &retry, &row, 1);
    publish_batch(&s.g.p, &retry);
    publish_step(&s.g.p);
    cr_assert(row.outcome == ROW_OPEN && !row.is_sent && s.lane->retried.count == 1,
              "it waits for the others' reports");
    row.outcome = ROW_DISPATCHED;
    holds_resolve(&s.g.p.holds, &row);
    send_fresh(&s, &fresh);
    cr_assert(s.g.rows[6].outcome == ROW_HELD && s.g.topic->partition_holds->owed == 2);
    close_scene(&s);
}

Test(overdue, a_row_without_a_readable_partition_waits_for_its_leader) {
    struct scene s;
    open_scene(&s);
    struct batch b = {.id = 3, .count = 2, .open = 2, .rows = &s.g.rows[6]};
    const bool some[] = {true, false, true, true}, all[] = {true, true, true, true};
    s.g.rows[6].batch = s.g.rows[7].batch = &b;
    overdue_await(&s.g.p, &s.g.rows[6], 1);
    overdue_await(&s.g.p, &s.g.rows[7], INT32_MAX);
    cr_assert(b.open == 0 && s.g.topic->partition_holds->waits_for == 7);
    cr_assert_not(overdue_settled(&s.g.p.overdue, &b), "nothing of it is in librdkafka's hands");
    overdue_note_leaders(&s.g.p.overdue, s.g.topic, GATE_LANES, some);
    overdue_note_leaders(&s.g.p.overdue, s.g.topic, -1, NULL);
    cr_assert_not(overdue_has_results(&s.g.p.overdue, s.start_us));
    overdue_note_leaders(&s.g.p.overdue, s.g.topic, GATE_LANES, all);
    cr_assert(overdue_has_results(&s.g.p.overdue, s.start_us) && s.g.p.overdue.count == 2 && s.g.topic->awaited == 0);
    close_scene(&s);
}

Test(overdue, too_much_memory_for_dead_partitions_asks_for_another_producer) {
    struct scene s;
    open_scene(&s);
    struct batch kept = {.bytes = 1001};
    batch_queue_push(&s.ledger.kept, &kept);
    step(&s, 1);
    cr_assert(s.g.p.must_look_up);
    close_scene(&s);
}
