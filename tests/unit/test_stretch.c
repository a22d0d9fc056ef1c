/* test_stretch.c: each stretch of offsets is named, once, unless others of its slot come between. */
#include <criterion/criterion.h>
#include <string.h>

#include "denpyo/stretch.h"

static struct stretches stretches;
static struct pgarray array;

/* Whether the array's last element is this text. */
static bool ends_with(const char *text) {
    size_t size = strlen(text);
    return array.size > size && array.data[array.size - size - 1] == size &&
           memcmp(array.data + array.size - size, text, size) == 0;
}

Test(stretch, is_named_once_by_topic_partition_and_number) {
    struct topic orders = {.name = (char[]){"orders"}, .name_size = 6},
                 mails = {.name = (char[]){"mails"}, .name_size = 5, .index = 1};
    stretch_begin(&stretches, &array);
    stretch_add(&stretches, &array, &orders, 3, 5000);
    cr_assert(ends_with("orders/3/4"));
    stretch_add(&stretches, &array, &orders, 3, 5001);
    stretch_add(&stretches, &array, &orders, 3, 5119);
    cr_assert_eq(array.count, 1);
    stretch_add(&stretches, &array, &orders, 3, 5120);
    cr_assert(ends_with("orders/3/5"));
    stretch_add(&stretches, &array, &orders, 4, 5120);
    cr_assert(ends_with("orders/4/5"));
    stretch_add(&stretches, &array, &mails, 3, 5120);
    cr_assert(ends_with("mails/3/5"));
    stretch_add(&stretches, &array, &orders, 3, INT64_MAX);
    cr_assert(ends_with("orders/3/9007199254740991"));
    cr_assert_eq(array.count, 5);
    pgarray_free(&array);
}

Test(stretch, of_an_unknown_offset_is_not_named) {
    struct topic orders = {.name = (char[]){"orders"}, .name_size = 6};
    stretch_begin(&stretches, &array);
    stretch_add(&stretches, &array, &orders, 0, -1);
    cr_assert_eq(array.count, 0);
    pgarray_free(&array);
}

Test(stretch, is_named_anew_in_each_receipt) {
    struct topic orders = {.name = (char[]){"orders"}, .name_size = 6};
    for (int i = 0; i < 2; i++) {
        stretch_begin(&stretches, &array);
        stretch_add(&stretches, &array, &orders, 0, 0);
        cr_assert_eq(array.count, 1);
    }
    pgarray_free(&array);
}

Test(stretch, of_two_partitions_that_share_a_slot_is_never_left_out) {
    struct topic orders = {.name = (char[]){"orders"}, .name_size = 6};
    stretch_begin(&stretches, &array);
    for (int i = 0; i < 3; i++)
        for (int32_t partition = 0; partition <= STRETCH_SLOTS; partition += STRETCH_SLOTS)
            stretch_add(&stretches, &array, &orders, partition, i * (1 << STRETCH_BITS));
    cr_assert_eq(array.count, 6);
    pgarray_free(&array);
}
