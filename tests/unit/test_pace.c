/* test_pace.c: a steady rate finds its pause; calm rates, bursts and backlogs have none; silence is looked at ever
 * less. */
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
        pace_init(&p, 1, 100, 25);
        cr_expect_eq(pause_at(&p, &now_us, rates[i], 2000), 0, "%lld a second", (long long)rates[i]);
    }
}

Test(pace, the_pause_grows_with_the_rate_up_to_its_bound_and_shrinks_where_rows_are_enough) {
    struct pace p;
    int64_t now_us = 1;
    pace_init(&p, 1, 100, 100);
    int64_t at_5000 = pause_at(&p, &now_us, 5000, 1000);
    cr_expect(at_5000 > 4000 && at_5000 < 7000, "%lld us", (long long)at_5000);
    int64_t at_10000 = pause_at(&p, &now_us, 10000, 1000);
    cr_expect(at_10000 > 30000 && at_10000 < 45000, "%lld us", (long long)at_10000);
    cr_expect_eq(pause_at(&p, &now_us, 18000, 1000), 100000);
    int64_t at_100000 = pause_at(&p, &now_us, 100000, 1000);
    cr_expect(at_100000 > 18000 && at_100000 < 22000, "2,000 rows: %lld us", (long long)at_100000);
    cr_expect_eq(pause_at(&p, &now_us, 1000, 1000), 0, "calm again");
}

Test(pace, none_when_it_is_switched_off_or_while_a_backlog_is_there) {
    struct pace p;
    int64_t now_us = 1;
    pace_init(&p, 1, 100, 0);
    cr_expect_eq(pause_at(&p, &now_us, 10000, 1000), 0);
    pace_init(&p, 1, 100, 25);
    pause_at(&p, &now_us, 10000, 1000);
    pace_claimed(&p, PAGE);
    cr_expect_eq(pace_next_us(&p, now_us + 10000, PAGE), now_us + 10000, "more than a page: more is there");
}

Test(pace, a_message_after_silence_is_looked_at_at_once) {
    struct pace p;
    int64_t now_us = 1;
    pace_init(&p, 1, 100, 25);
    cr_assert_gt(pause_at(&p, &now_us, 10000, 1000), 0);
    now_us += SECOND_US;
    pace_claimed(&p, 1);
    cr_expect_eq(pace_next_us(&p, now_us, PAGE), now_us);
}

/* A row every interval_us, looks as they are due. The longest that a row waited for its look, after the first. */
static int64_t longest_wait_us(int64_t interval_us) {
    struct pace p;
    pace_init(&p, 1, 100, 25);
    int64_t longest_us = 0, look_us = 1, row_us = 1;
    for (int rows = 0; rows < 100;) {
        if (look_us < row_us) {
            look_us = pace_silent_us(&p, look_us);
            continue;
        }
        if (rows++ > 0 && look_us - row_us > longest_us)
            longest_us = look_us - row_us;
        pace_heard(&p, look_us);
        row_us += interval_us;
    }
    return longest_us;
}

Test(pace, rows_that_come_steadily_wait_for_a_small_share_of_the_time_between_them) {
    static const int64_t intervals_us[] = {2000, 10000, 50000, 200000, 700000};
    for (size_t i = 0; i < sizeof intervals_us / sizeof *intervals_us; i++) {
        int64_t bound_us = intervals_us[i] / 6 > 1000 ? intervals_us[i] / 6 : 1000;
        int64_t waited_us = longest_wait_us(intervals_us[i]);
        cr_expect(waited_us <= bound_us, "every %lld us: %lld", (long long)intervals_us[i], (long long)waited_us);
    }
}

Test(pace, a_long_silence_is_looked_at_once_an_idle_interval) {
    struct pace p;
    pace_init(&p, 1, 100, 25);
    int64_t now_us = 1, looks = 0;
    for (; now_us < SECOND_US; looks++)
        now_us = pace_silent_us(&p, now_us);
    cr_expect(looks < 60, "%lld looks in the first second", (long long)looks);
    cr_expect_eq(pace_silent_us(&p, now_us) - now_us, 100000);
    pace_heard(&p, now_us);
    cr_expect_eq(pace_silent_us(&p, now_us) - now_us, 1000, "the busy interval again");
}

Test(pace, an_idle_interval_of_no_more_than_the_busy_one_is_kept) {
    struct pace p;
    pace_init(&p, 50, 50, 25);
    cr_expect_eq(pace_silent_us(&p, 1), 50001);
    cr_expect_eq(pace_silent_us(&p, 10 * SECOND_US), 10 * SECOND_US + 50000);
}
