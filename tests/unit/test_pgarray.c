/* test_pgarray.c: arrays byte by byte as PostgreSQL's array_recv reads them. */
#include <criterion/criterion.h>
#include <string.h>

#include "denpyo/pgarray.h"

#define EXPECT_BYTES(a, ...)                                                                                           \
    do {                                                                                                               \
        static const unsigned char expected[] = {__VA_ARGS__};                                                         \
        cr_assert_eq((a)->size, sizeof expected);                                                                      \
        cr_assert_arr_eq((a)->data, expected, sizeof expected);                                                        \
    } while (0)

Test(pgarray, empty_arrays_have_no_dimension) {
    struct pgarray a = {0};
    pgarray_begin(&a, PGARRAY_INT8, 100, 8);
    pgarray_end(&a);
    EXPECT_BYTES(&a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20);
    pgarray_free(&a);
}

Test(pgarray, integers_of_each_size_with_their_signs) {
    struct pgarray a = {0};
    pgarray_begin(&a, PGARRAY_INT2, 0, 2);
    pgarray_add_int2(&a, -2);
    pgarray_add_int2(&a, 258);
    pgarray_end(&a);
    EXPECT_BYTES(&a, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 21, 0, 0, 0, 2, 0, 0, 0, 1, /* header */
                 0, 0, 0, 2, 0xff, 0xfe, 0, 0, 0, 2, 1, 2);
    pgarray_begin(&a, PGARRAY_INT4, 0, 4);
    pgarray_add_int4(&a, INT32_MIN);
    pgarray_end(&a);
    EXPECT_BYTES(&a, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 23, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 4, 0x80, 0, 0, 0);
    pgarray_begin(&a, PGARRAY_INT8, 0, 8);
    pgarray_add_int8(&a, -1);
    pgarray_add_int8(&a, INT64_C(0x0102030405060708));
    pgarray_end(&a);
    EXPECT_BYTES(&a, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 2, 0, 0, 0, 1, /* header */
                 0, 0, 0, 8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8);
    pgarray_free(&a);
}

Test(pgarray, text_and_nulls) {
    struct pgarray a = {0};
    pgarray_begin(&a, PGARRAY_TEXT, 3, 10);
    pgarray_add_bytes(&a, "ab", 2);
    pgarray_add_null(&a);
    pgarray_add_bytes(&a, "", 0);
    pgarray_end(&a);
    EXPECT_BYTES(&a, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 25, 0, 0, 0, 3, 0, 0, 0, 1, /* header */
                 0, 0, 0, 2, 'a', 'b', 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0);
    pgarray_free(&a);
}

Test(pgarray, a_second_use_forgets_the_first) {
    struct pgarray a = {0};
    pgarray_begin(&a, PGARRAY_TEXT, 1, 1);
    pgarray_add_null(&a);
    pgarray_end(&a);
    pgarray_begin(&a, PGARRAY_UUID, 1, 16);
    pgarray_add_bytes(&a, "0123456789abcdef", 16);
    pgarray_end(&a);
    EXPECT_BYTES(&a, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x0b, 0x86, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 16, /* header */
                 '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f');
    pgarray_free(&a);
}

Test(pgarray, grows_far_beyond_what_was_expected) {
    struct pgarray a = {0};
    pgarray_begin(&a, PGARRAY_INT8, 1, 1);
    for (int64_t i = 0; i < 100000; i++)
        pgarray_add_int8(&a, i);
    pgarray_end(&a);
    cr_assert_eq(a.size, 20 + 100000 * 12);
    static const unsigned char last[] = {0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0x86, 0x9f};
    cr_assert_arr_eq(a.data + a.size - 12, last, 12);
    pgarray_free(&a);
}
