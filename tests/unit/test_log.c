/* test_log.c: what one event looks like on standard error, in both formats and with hostile values. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <pty.h>
#include <regex.h>
#include <string.h>
#include <unistd.h>

#include "denpyo/log.h"

static char captured[4096];
static int saved, reading;

static void capture(void) {
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    saved = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    reading = ends[0];
}

/* Everything written since capture(); standard error is itself again. */
static const char *release(void) {
    dup2(saved, STDERR_FILENO);
    close(saved);
    ssize_t size = 0, n;
    while ((n = read(reading, captured + size, sizeof captured - 1 - (size_t)size)) > 0)
        size += n;
    captured[size] = 0;
    close(reading);
    return captured;
}

static void assert_matches(const char *line, const char *pattern) {
    regex_t regex;
    cr_assert_eq(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    cr_assert_eq(regexec(&regex, line, 0, NULL, 0), 0, "%s does not match %s", line, pattern);
    regfree(&regex);
}

Test(log, text_is_time_level_text_fields) {
    capture();
    log_event(LOG_INFO, "batch claimed", log_int("batch", -7), log_str("topic", "orders"), LOG_END);
    assert_matches(release(), "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z info batch claimed "
                              "batch=-7 topic=orders\n$");
}

Test(log, text_quotes_what_would_confuse) {
    static const struct {
        const char *value, *written;
    } cases[] = {
        {"plain:9092", " v=plain:9092\n"},
        {"", " v=\"\"\n"},
        {"two words", " v=\"two words\"\n"},
        {"say \"hi\"", " v=\"say \\\"hi\\\"\"\n"},
        {"a=b", " v=\"a=b\"\n"},
        {"line\nbreak\ttab", " v=\"line\\nbreak\\ttab\"\n"},
        {"\x1b[31mred", " v=\"\\x1b[31mred\"\n"},
        {"\xc2\x9b"
         "31mred",
         " v=\"\\x9b31mred\"\n"}, /* the same in one character, U+009B */
        {"伝票", " v=伝票\n"},
        {"cut \xe4\xbc", " v=\"cut \\xe4\\xbc\"\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        capture();
        log_event(LOG_WARN, "t", log_str("v", cases[i].value), LOG_END);
        const char *line = release();
        cr_assert_not_null(strstr(line, cases[i].written), "got %s, wanted %s", line, cases[i].written);
    }
}

Test(log, json_is_valid_whatever_the_value) {
    log_setup(LOG_JSON, LOG_INFO);
    static const char *const values[] = {"plain",        "",         "\"\\/\n\t\r\b\x01\x7f", "伝票", "\xff\xfe",
                                         "\xed\xa0\x80", "\xc0\x80", "cut \xf0\x9f\x92"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        capture();
        log_event(LOG_ERROR, "it broke", log_str("v", values[i]), log_int("n", INT64_MIN), LOG_END);
        const char *line = release();
        json_error_t error;
        json_t *root = json_loads(line, 0, &error);
        cr_assert_not_null(root, "%s: %s", line, error.text);
        cr_assert_str_eq(json_string_value(json_object_get(root, "level")), "error");
        cr_assert_str_eq(json_string_value(json_object_get(root, "text")), "it broke");
        cr_assert_eq(json_integer_value(json_object_get(root, "n")), INT64_MIN);
        if (i < 4)
            cr_assert_str_eq(json_string_value(json_object_get(root, "v")), values[i]);
        json_decref(root);
    }
}

Test(log, less_important_events_are_left_out) {
    log_setup(LOG_TEXT, LOG_WARN);
    capture();
    log_event(LOG_INFO, "hidden", LOG_END);
    log_event(LOG_DEBUG, "hidden too", LOG_END);
    log_event(LOG_WARN, "shown", LOG_END);
    assert_matches(release(), "^[^\n]* warn shown\n$");
}

Test(log, no_progress_line_without_a_terminal) {
    capture();
    log_progress("50 %");
    log_event(LOG_INFO, "event", LOG_END);
    log_progress(NULL);
    assert_matches(release(), "^[^\r\033]* info event\n$");
}

/* Standard error is a terminal of 20 columns; what was written to it until release_terminal. */
static int terminal;
static void capture_terminal(void) {
    int slave;
    cr_assert_eq(openpty(&terminal, &slave, NULL, NULL, &(struct winsize){.ws_row = 5, .ws_col = 20}), 0);
    saved = dup(STDERR_FILENO);
    dup2(slave, STDERR_FILENO);
    close(slave);
}

static const char *release_terminal(void) {
    dup2(saved, STDERR_FILENO); /* the last writer: reading ends with EIO */
    close(saved);
    ssize_t size = 0, n;
    while ((n = read(terminal, captured + size, sizeof captured - 1 - (size_t)size)) > 0)
        size += n;
    captured[size] = 0;
    close(terminal);
    return captured;
}

Test(log, progress_line_stays_below_events_and_in_its_row) {
    static const char row[] = "\r\033[K7 é/s ? 3 in flight"; /* 19 of 20 columns: the last would wrap */
    capture_terminal();
    log_progress("7 é/s \n 3 in flight, and more than fits");
    log_event(LOG_INFO, "event", LOG_END);
    log_progress(NULL);
    log_progress(NULL);
    const char *written = release_terminal();
    cr_assert_eq(strncmp(written, row, strlen(row)), 0, "%s", written);
    const char *event = written + strlen(row);
    cr_assert_eq(strncmp(event, "\r\033[K", 4), 0, "the row is erased before the event");
    const char *after = strstr(event, " info event\r\n");
    cr_assert_not_null(after);
    cr_assert_str_eq(after + strlen(" info event\r\n"), "7 é/s ? 3 in flight\r\033[K", "and is there again below it");
}

Test(log, words_are_parsed) {
    enum log_level level = LOG_INFO;
    enum log_format format = LOG_TEXT;
    cr_assert(log_level_parse("debug", &level));
    cr_assert_eq(level, LOG_DEBUG);
    cr_assert_not(log_level_parse("loud", &level));
    cr_assert_eq(level, LOG_DEBUG);
    cr_assert(log_format_parse("json", &format));
    cr_assert_eq(format, LOG_JSON);
    cr_assert_not(log_format_parse("", &format));
}
