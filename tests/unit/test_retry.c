/* test_retry.c: the backoff doubles, stays within its bounds and never overflows. */
#include <criterion/criterion.h>

#include "denpyo/retry.h"
#include "random.h"

Test(retry, doubles_up_to_the_bound) {
    static const int64_t expected[] = {100, 200, 400, 800, 1000, 1000};
    for (int64_t attempt = 1; attempt <= 6; attempt++)
        cr_expect_eq(retry_delay_ms(attempt, 100, 1000, 0), expected[attempt - 1]);
}

Test(retry, jitter_takes_off_up_to_a_quarter) {
    cr_expect_eq(retry_delay_ms(1, 1000, 1000, 0), 1000);
    cr_expect_eq(retry_delay_ms(1, 1000, 1000, UINT32_MAX / 2 + 1), 875);
    cr_expect_eq(retry_delay_ms(1, 1000, 1000, UINT32_MAX), 751);
}

Test(retry, small_numbers_stay_at_least_one) {
    cr_expect_eq(retry_delay_ms(1, 1, 1, UINT32_MAX), 1);
    cr_expect_eq(retry_delay_ms(0, 0, 0, UINT32_MAX), 1);
    cr_expect_eq(retry_delay_ms(-5, -5, -5, 7), 1);
    cr_expect_eq(retry_delay_ms(1, 5000, 1000, 0), 1000);
}

Test(retry, huge_numbers_do_not_overflow) {
    cr_expect_eq(retry_delay_ms(INT64_MAX, 1, INT64_MAX, 0), INT64_MAX);
    cr_expect_eq(retry_delay_ms(INT64_MAX, INT64_MAX, INT64_MAX, UINT32_MAX),
                 INT64_MAX - (INT64_MAX / 4 - (1LL << 29)));
    cr_expect_eq(retry_delay_ms(63, 1, INT64_MAX, 0), INT64_C(1) << 62);
    cr_expect_eq(retry_delay_ms(64, 1, INT64_MAX, 0), INT64_MAX);
    cr_expect_eq(retry_delay_ms(63, 2, INT64_MAX, 0), INT64_MAX);
}

Test(retry, always_within_three_quarters_of_the_doubled_wait) {
    uint64_t seed = 1;
    for (int i = 0; i < 200000; i++) {
        int64_t attempts = 1 + (int64_t)random_below(&seed, 40);
        int64_t initial = 1 + (int64_t)random_below(&seed, 5000);
        int64_t limit = 1 + (int64_t)random_below(&seed, 10000000);
        int64_t full = initial < limit ? initial : limit;
        for (int64_t n = 1; n < attempts && full < limit; n++)
            full = 2 * full < limit ? 2 * full : limit;
        int64_t delay = retry_delay_ms(attempts, initial, limit, (uint32_t)random_next(&seed));
        cr_assert(delay >= full - full / 4 && delay <= full && delay >= 1, "attempts %ld initial %ld limit %ld: %ld",
                  (long)attempts, (long)initial, (long)limit, (long)delay);
    }
}
