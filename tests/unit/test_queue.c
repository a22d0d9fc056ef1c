/* test_queue.c: rows leave a queue, and a lane's three queues, in the order that the gate promises. */
#include <criterion/criterion.h>

#include "denpyo/batch.h"
#include "denpyo/outcome.h"
#include "denpyo/topic.h"

static void push_ids(struct row_queue *q, struct row *rows, int64_t first, size_t count) {
    for (size_t i = 0; i < count; i++) {
        rows[i].id = first + (int64_t)i;
        queue_push(q, &rows[i]);
    }
}

static void expect_ids(struct row_queue *q, const int64_t *ids, size_t count) {
    cr_assert_eq(q->count, count);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(queue_pop(q)->id, ids[i]);
    cr_assert_null(queue_pop(q));
    cr_assert(q->first == NULL && q->last == NULL && q->count == 0);
}

Test(queue, first_in_first_out) {
    struct row rows[3] = {{0}};
    struct row_queue q = {0};
    cr_assert_null(queue_pop(&q));
    push_ids(&q, rows, 1, 3);
    expect_ids(&q, (int64_t[]){1, 2, 3}, 3);
}

Test(queue, prepend_keeps_both_orders_and_empties_the_other) {
    struct row rows[6] = {{0}};
    struct row_queue q = {0}, more = {0}, none = {0};
    queue_prepend(&q, &none);
    cr_assert_null(q.first);
    push_ids(&more, rows, 1, 2);
    queue_prepend(&q, &more);
    cr_assert(more.first == NULL && more.last == NULL && more.count == 0);
    push_ids(&more, rows + 2, 8, 1);
    queue_prepend(&q, &more);
    queue_push(&q, &rows[5]);
    rows[5].id = 9;
    queue_prepend(&q, &none);
    expect_ids(&q, (int64_t[]){8, 1, 2, 9}, 4);
}

Test(queue, a_lane_sends_what_came_back_before_what_was_put_back_before_what_is_new) {
    struct batch page = {0}, retry = {.is_retry = true};
    struct row rows[6] = {{0}};
    struct lane lane = {0};
    struct row_queue group = {0}, *next;
    cr_assert_null(topic_lane_next(&lane));
    for (size_t i = 0; i < 6; i++) {
        rows[i].id = (int64_t)i;
        rows[i].batch = i < 2 ? &retry : &page;
    }
    queue_push(&lane.waiting, &rows[4]);
    queue_push(&lane.waiting, &rows[5]);
    /* A group of both kinds is refused while another batch of parked rows came back: each finds its own place. */
    queue_push(&group, &rows[0]);
    queue_push(&group, &rows[2]);
    queue_push(&group, &rows[3]);
    outcome_put_back(&lane, &group);
    cr_assert_null(group.first);
    queue_push(&lane.retried, &rows[1]);
    for (int64_t id = 0; id < 6; id++) {
        next = topic_lane_next(&lane);
        cr_assert_not_null(next);
        cr_assert_eq(queue_pop(next)->id, id);
    }
    cr_assert_null(topic_lane_next(&lane));
}
