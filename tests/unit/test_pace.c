/* test_pace.c: a steady rate finds its pause; calm rates, bursts and backlogs have none. */
#include <criterion/criterion.h>

#include "denpyo/pace.h"

#define PAGE 5000
#define SECOND_US 1000000

/* Rows come at a steady rate for a second; a look comes when it is due, and at least least_us after the last. The last
 * pause. */
static int64_t pause_at(struct pace *p, int64_t *now_us, int64_t rate, int64_t least_us) {
    int64_t end_us = *now_us + SECOND_US, pause_us = 0;
    double owed = 0;
    while (*now_us < end_us) {
        int64_t step_us = pause_us > least_us ? pause_us : least_us;
        *now_us += step_us;
        owed += (double)rate * (double)step_us / SECOND_US;
        int64_t rows = (int64_t)owed;
        owed -= (double)rows;
        if (rows == 0)
            continue; /* the look found nothing: pace is not told */
        pace_claimed(p, rows);
        int64_t due_us = pace_next_us(p, *now_us, PAGE);
        cr_assert_geq(due_us, *now_us);
        pause_us = due_us - *now_us;
    }
    return pause_us;
}

Test(pace, calm_rates_are_looked_at_at_once) {
    static const int64_t rates[] = {1, 10, 100, 1000, 1900};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        struct pace p;
        int64_t now_us = 1;
        pace_init(&p, 25);
        cr_expect_eq(pause_at(&p, &now_us, rates[i], 2000), 0, "%lld a second", (long long)rates[i]);
    }
}

Test(pace, the_pause_grows_with_the_rate_up_to_its_bound_and_shrinks_where_rows_are_enough) {
    struct pace p;
    int64_t now_us = 1;
    pace_init(&p, 25);
    int64_t at_5000 = pause_at(&p, &now_us, 5000, 1000);
    cr_expect(at_5000 > 8000 && at_5000 < 11000, "%lld us", (long long)at_5000);
    cr_expect_eq(pause_at(&p, &now_us, 15000, 1000), 25000);
    int64_t at_100000 = pause_at(&p, &now_us, 100000, 1000);
    cr_expect(at_100000 > 4000 && at_100000 < 6000, "500 rows: %lld us", (long long)at_100000);
    cr_expect_eq(pause_at(&p, &now_us, 1000, 1000), 0, "calm again");
}

Test(pace, none_when_it_is_switched_off_or_while_a_backlog_is_there) {
    struct pace p;
    int64_t now_us = 1;
    pace_init(&p, 0);
    cr_expect_eq(pause_at(&p, &now_us, 10000, 1000), 0);
    pace_init(&p, 25);
    pause_at(&p, &now_us, 10000, 1000);
    pace_claimed(&p, PAGE);
    cr_expect_eq(pace_next_us(&p, now_us + 10000, PAGE), now_us + 10000, "more than a page: more is there");
}

Test(pace, a_message_after_silence_is_looked_at_at_once) {
    struct pace p;
    int64_t now_us = 1;
    pace_init(&p, 25);
    cr_assert_gt(pause_at(&p, &now_us, 10000, 1000), 0);
    now_us += SECOND_US;
    pace_claimed(&p, 1);
    cr_expect_eq(pace_next_us(&p, now_us, PAGE), now_us);
}
