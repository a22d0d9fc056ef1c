/* test_batch.c: a batch counts what is open, troubles keep their last word, and the queue its totals. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/batch.h"

enum { ROWS = 4 };

static struct batch *new_batch(size_t count, size_t bytes) {
    struct batch *batch = calloc(1, sizeof *batch);
    cr_assert_not_null(batch);
    batch->rows = calloc(count + 1, sizeof *batch->rows);
    cr_assert_not_null(batch->rows);
    batch->count = batch->open = count;
    batch->bytes = bytes;
    for (size_t i = 0; i < count; i++)
        batch->rows[i].batch = batch;
    return batch;
}

Test(batch, giving_up_touches_only_what_is_open) {
    struct batch *batch = new_batch(ROWS, 1);
    batch_close_row(&batch->rows[0], ROW_DISPATCHED);
    batch_close_row(&batch->rows[2], ROW_REJECTED);
    cr_assert_eq(batch->open, 2);
    batch_give_up(batch);
    cr_assert_eq(batch->open, 0);
    static const enum row_outcome expected[ROWS] = {ROW_DISPATCHED, ROW_UNSURE, ROW_REJECTED, ROW_UNSURE};
    for (size_t i = 0; i < ROWS; i++)
        cr_assert_eq(batch->rows[i].outcome, expected[i]);
    batch_free(batch);
}

Test(batch, a_row_is_closed_once, .signal = SIGABRT) {
    struct batch *batch = new_batch(1, 1);
    batch_close_row(&batch->rows[0], ROW_DISPATCHED);
    batch_close_row(&batch->rows[0], ROW_FAILED);
}

Test(batch, trouble_is_cut_at_its_size_and_replaced) {
    char longer[500];
    struct batch *batch = new_batch(1, 1);
    struct row *row = &batch->rows[0];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    batch_set_trouble(row, SCOPE_TOPIC, longer, "%s", longer);
    struct row_trouble *first = row->trouble;
    cr_assert_eq(strlen(first->code), sizeof first->code - 1);
    cr_assert_eq(strlen(first->text), sizeof first->text - 1);
    batch_set_trouble(row, SCOPE_KEY, "CODE", "%d bytes", 7);
    cr_assert_eq(row->trouble, first);
    cr_assert(first->scope == SCOPE_KEY && strcmp(first->code, "CODE") == 0 && strcmp(first->text, "7 bytes") == 0);
    batch_free(batch);
}

Test(batch, the_queue_knows_its_totals) {
    struct batch_queue q = {0};
    cr_assert_null(batch_queue_pop(&q));
    for (size_t i = 1; i <= 3; i++)
        batch_queue_push(&q, new_batch(i, 10 * i));
    cr_assert(q.count == 3 && q.rows == 6 && q.bytes == 60);
    for (size_t i = 1; i <= 3; i++) {
        struct batch *batch = batch_queue_pop(&q);
        cr_assert_eq(batch->count, i);
        batch_free(batch);
    }
    cr_assert(q.count == 0 && q.rows == 0 && q.bytes == 0 && q.first == NULL && q.last == NULL);
    batch_free(NULL);
}

Test(batch, a_trouble_is_text_that_can_be_stored_and_shown) {
    struct batch *batch = new_batch(1, 1);
    char emoji[301] = "";
    for (int i = 0; i < 75; i++)
        strcat(emoji, "\xf0\x9f\x98\x80"); /* the 300th byte falls into the last one */
    batch_set_trouble(&batch->rows[0], SCOPE_KEY, "CODE", "%s", emoji);
    cr_assert_eq(strlen(batch->rows[0].trouble->text), 299);
    cr_assert_str_eq(batch->rows[0].trouble->text + 296, "???");
    batch_set_trouble(&batch->rows[0], SCOPE_KEY, "CODE", "topic %s", "a\nb\x1b[31m\xff");
    cr_assert_str_eq(batch->rows[0].trouble->text, "topic a b?[31m?");
    batch_free(batch);
}
