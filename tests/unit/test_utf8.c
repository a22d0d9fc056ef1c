/* test_utf8.c: stray bytes, control characters of one and two bytes, and a text that is cut between characters. */
#include <criterion/criterion.h>
#include <string.h>

#include "denpyo/utf8.h"

Test(utf8, only_well_formed_characters_count) {
    static const struct {
        const char *text;
        size_t size;
    } cases[] = {
        {"a", 1},        {"\xc3\xa9", 2},    {"\xe4\xbc\x9d", 3}, {"\xf0\x9f\x98\x80", 4}, {"\xff", 0},
        {"\x80", 0},     {"\xc0\x80", 0},    {"\xe0\x80\x80", 0}, {"\xed\xa0\x80", 0},     {"\xf4\x90\x80\x80", 0},
        {"\xe4\xbc", 0}, {"\xf0\x9f\x98", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_eq(utf8_size((const unsigned char *)cases[i].text), cases[i].size, "case %zu", i);
}

Test(utf8, what_steers_a_terminal_is_never_shown) {
    static const struct {
        const char *text, *cleaned;
    } cases[] = {
        {"plain \xe4\xbc\x9d", "plain \xe4\xbc\x9d"},
        {"two\nlines\tand\rmore", "two lines and more"},
        {"\x1b[31mred\x7f", "?[31mred?"},
        {"\xc2\x9b"
         "31m",
         "?31m"},
        {"\xc2\xa0kept", "\xc2\xa0kept"},
        {"bad\xff\xc3", "bad??"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[100];
        utf8_clean(out, sizeof out, cases[i].text);
        cr_expect_str_eq(out, cases[i].cleaned, "case %zu: %s", i, out);
    }
}

Test(utf8, a_text_is_cut_between_characters) {
    char out[6];
    utf8_clean(out, sizeof out, "abc\xe4\xbc\x9d");
    cr_expect_str_eq(out, "abc");
    utf8_clean(out, sizeof out, "ab\xe4\xbc\x9d");
    cr_expect_str_eq(out, "ab\xe4\xbc\x9d");
    char same[] = "a\nb\xe4";
    utf8_clean(same, sizeof same, same);
    cr_expect_str_eq(same, "a b?");
}
