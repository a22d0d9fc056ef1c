/* test_mark.c: a mark tells of each batch exactly what was sent, of no other batch anything, and fits where it must. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/mark.h"

enum { ROWS = 100, BATCHES = 3 };

struct fixture {
    struct batch batches[BATCHES];
    struct row rows[BATCHES][ROWS];
    unsigned char ids[BATCHES][ROWS][16];
    struct topic topic, other;
};

/* Batches 11, 12, 13; every row has a message id of its own. */
static struct fixture *new_fixture(void) {
    struct fixture *x = calloc(1, sizeof *x);
    cr_assert_not_null(x);
    for (int b = 0; b < BATCHES; b++) {
        x->batches[b] = (struct batch){.id = 11 + b, .count = ROWS, .open = ROWS, .rows = x->rows[b]};
        x->batches[b].next = b + 1 < BATCHES ? &x->batches[b + 1] : NULL;
        for (int i = 0; i < ROWS; i++) {
            x->ids[b][i][3] = (unsigned char)b;
            x->ids[b][i][15] = (unsigned char)i;
            x->rows[b][i] = (struct row){.batch = &x->batches[b], .topic = &x->topic, .message_id = x->ids[b][i]};
        }
    }
    return x;
}

static void send_all(struct fixture *x) {
    for (int b = 0; b < BATCHES; b++)
        for (int i = 0; i < ROWS; i++)
            x->rows[b][i].is_acknowledged = true;
}

static void assert_tells(struct fixture *x, const struct mark *m, int b) {
    cr_assert(mark_apply(m->batch_id, m->text, &x->batches[b]));
    for (int i = 0; i < ROWS; i++) {
        const struct row *row = &x->rows[b][i];
        cr_assert_eq(row->is_marked, row->is_acknowledged || row->outcome == ROW_DISPATCHED, "batch %d row %d", b, i);
    }
}

Test(mark, tells_what_was_sent_of_each_batch) {
    struct fixture *x = new_fixture();
    struct mark m;
    send_all(x);
    x->rows[0][0].is_acknowledged = x->rows[1][5].is_acknowledged = x->rows[1][99].is_acknowledged = false;
    x->rows[1][5].outcome = ROW_REJECTED;
    x->rows[2][7].is_acknowledged = false;
    x->rows[2][7].outcome = ROW_DISPATCHED; /* by an earlier transaction */
    cr_assert(mark_write(&m, x->batches, 13, MARK_TEXT_MOST));
    cr_assert(m.batch_id == 13 && m.topic == &x->topic);
    for (int b = 0; b < BATCHES; b++)
        assert_tells(x, &m, b);
    free(x);
}

Test(mark, is_of_the_newest_batch_of_which_a_row_was_sent_and_of_a_topic_that_takes_it) {
    struct fixture *x = new_fixture();
    struct mark m;
    cr_assert_not(mark_write(&m, x->batches, 13, MARK_TEXT_MOST)); /* nothing was sent */
    x->rows[0][1].is_acknowledged = x->rows[1][1].is_acknowledged = x->rows[2][1].is_acknowledged = true;
    x->rows[1][1].topic = &x->other;
    cr_assert(mark_write(&m, x->batches, 12, MARK_TEXT_MOST)); /* 13 belongs to the next transaction */
    cr_assert(m.batch_id == 12 && m.topic == &x->other);
    cr_assert_not(mark_apply(m.batch_id, m.text, &x->batches[2]));
    x->other.is_unmarkable = true;
    cr_assert(mark_write(&m, x->batches, 12, MARK_TEXT_MOST));
    cr_assert(m.batch_id == 12 && m.topic == &x->topic);
    x->topic.is_unmarkable = true;
    cr_assert_not(mark_write(&m, x->batches, 12, MARK_TEXT_MOST));
    free(x);
}

Test(mark, knows_no_other_rows_of_the_same_number) {
    struct fixture *x = new_fixture();
    struct mark m;
    send_all(x);
    cr_assert(mark_write(&m, x->batches, 13, MARK_TEXT_MOST));
    x->ids[1][50][9] ^= 1; /* the database was restored, and batch 12 is another one now */
    cr_assert_not(mark_apply(m.batch_id, m.text, &x->batches[1]));
    x->batches[2].count--; /* a row was deleted */
    cr_assert_not(mark_apply(m.batch_id, m.text, &x->batches[2]));
    for (int i = 0; i < ROWS; i++)
        cr_assert_not(x->rows[1][i].is_marked || x->rows[2][i].is_marked);
    assert_tells(x, &m, 0);
    free(x);
}

Test(mark, without_room_tells_of_the_newest_batches_only) {
    struct fixture *x = new_fixture();
    struct mark m;
    send_all(x);
    for (int b = 0; b < BATCHES; b++)
        x->rows[b][ROWS - 1].is_acknowledged = false; /* each piece has its full length: 8 + 17 + 1 */
    cr_assert(mark_write(&m, x->batches, 13, 2 + 2 * 26));
    cr_assert_eq(strlen(m.text), 2 + 2 * 26);
    assert_tells(x, &m, 2);
    assert_tells(x, &m, 1);
    cr_assert_not(mark_apply(m.batch_id, m.text, &x->batches[0]));
    cr_assert(mark_write(&m, x->batches, 13, 10)); /* none fits: it says nothing */
    cr_assert_not(mark_apply(m.batch_id, m.text, &x->batches[2]));
    free(x);
}

Test(mark, never_outgrows_its_place_whatever_the_number_of_batches) {
    enum { MANY = 3000 };
    static struct batch batches[MANY];
    static struct row rows[MANY];
    static unsigned char ids[MANY][16];
    struct topic topic = {0};
    struct mark m;
    for (int i = 0; i < MANY; i++) {
        memcpy(ids[i], &i, sizeof i);
        rows[i] =
            (struct row){.batch = &batches[i], .topic = &topic, .message_id = ids[i], .is_acknowledged = i < 2900};
        batches[i] = (struct batch){
            .id = i + 1, .count = 1, .open = 1, .rows = &rows[i], .next = i + 1 < MANY ? &batches[i + 1] : NULL};
    }
    cr_assert(mark_write(&m, batches, MANY, MARK_TEXT_MOST));
    cr_assert_eq(m.batch_id, 2900);
    cr_assert_leq(strlen(m.text), (size_t)MARK_TEXT_MOST);
    cr_assert(mark_apply(m.batch_id, m.text, &batches[2899]) && rows[2899].is_marked);
    cr_assert(mark_apply(m.batch_id, m.text, &batches[2600]) && rows[2600].is_marked);
    cr_assert_not(mark_apply(m.batch_id, m.text, &batches[2000]));
}

Test(mark, of_anybody_says_nothing) {
    static const char *const texts[] = {
        "", "d", "d1", "d1;", "d1;;;", "d2AAAAAAAA;", "a consumer's own note", "d1AAAAAAAA", "d1 AAAA;"};
    struct fixture *x = new_fixture();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        cr_assert_not(mark_apply(13, texts[i], &x->batches[2]), "%s", texts[i]);
    cr_assert_not(mark_apply(INT64_MAX, "d1;;", &x->batches[0]));
    cr_assert_not(mark_apply(-5, "d1;;", &x->batches[0]));
    free(x);
}
