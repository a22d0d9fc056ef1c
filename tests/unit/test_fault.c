/* test_fault.c: a fault is filled, cut at its size, and always returns false. */
#include <criterion/criterion.h>
#include <string.h>

#include "denpyo/fault.h"

Test(fault, set_fills_all_and_returns_false) {
    struct fault f = {0};
    cr_assert_not(fault_set(&f, FAULT_RETRY, "57P01", "server %s stopped", "a"));
    cr_assert_eq(f.class, FAULT_RETRY);
    cr_assert_str_eq(f.code, "57P01");
    cr_assert_str_eq(f.text, "server a stopped");
}

Test(fault, may_be_null) {
    cr_assert_not(fault_set(NULL, FAULT_FATAL, "X", "text"));
}

Test(fault, is_cut_at_its_size) {
    struct fault f = {0};
    char longest[2000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    fault_set(&f, FAULT_FATAL, longest, "%s", longest);
    cr_assert_eq(strlen(f.code), sizeof f.code - 1);
    cr_assert_eq(strlen(f.text), sizeof f.text - 1);
}

Test(fault, every_class_has_a_word_of_its_own) {
    for (int i = FAULT_NONE; i <= FAULT_FATAL; i++) {
        cr_assert_not_null(fault_class_name((enum fault_class)i));
        for (int j = FAULT_NONE; j < i; j++)
            cr_assert_str_neq(fault_class_name((enum fault_class)i), fault_class_name((enum fault_class)j));
    }
}

static void check_line(const char *message, const char *expected) {
    char line[200];
    fault_one_line(line, sizeof line, message);
    cr_assert_str_eq(line, expected);
}

Test(fault, several_lines_become_one_that_can_be_read) {
    check_line("", "");
    check_line("\n\n", "");
    check_line("one\n", "one");
    check_line("refused\n\tIs the server running?\n", "refused (Is the server running?)");
    check_line("at ::1: refused\n\tIs it?\nat 127.0.0.1: refused\n\tIs it?\n\tIs it not?",
               "at ::1: refused (Is it?); at 127.0.0.1: refused (Is it?; Is it not?)");
    check_line("\tone \r\n  two\tthree\n", "one; two three");
}

Test(fault, a_line_is_cut_at_its_size) {
    char line[8];
    fault_one_line(line, sizeof line, "123456789\n\tmore");
    cr_assert_str_eq(line, "1234567");
    fault_one_line(line, sizeof line, "12\n\t34");
    cr_assert_str_eq(line, "12 (34)");
    fault_one_line(line, sizeof line, "123\n\t45678");
    cr_assert_str_eq(line, "123 (45");
}
