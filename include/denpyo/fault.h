/* fault.h: what went wrong, and what the caller may do about it. */
#ifndef DENPYO_FAULT_H
#define DENPYO_FAULT_H

#include <stdbool.h>
#include <stddef.h>

/* What the caller may do. Switches over this enum carry no default. */
enum fault_class {
    FAULT_NONE,   /* nothing is wrong */
    FAULT_RETRY,  /* the same call can succeed later: wait and try again */
    FAULT_REJECT, /* this message can never be accepted as it is: a person decides */
    FAULT_FENCED, /* another leader took over: stop writing at once */
    FAULT_USAGE,  /* the words on the command line or in the configuration are off (exit code 2) */
    FAULT_FATAL,  /* will not heal by itself: say why and exit (exit code 1) */
};

/*
 * One fault. Zero-initialise (struct fault f = {0}); it owns nothing and needs no freeing.
 * `code` is a short stable word for tables and scripts ("42P01", "UNKNOWN_TOPIC"), `text` is a whole
 * sentence for a person that says what to do. Both are NUL-terminated and cut at their size.
 */
struct fault {
    enum fault_class class;
    char code[40];
    char text[600];
};

/* Fills *f (f may be NULL) and returns false always, so that callers can write `return fault_set(…)`. */
bool fault_set(struct fault *f, enum fault_class class, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/*
 * A library's message of several lines as one, for a fault's text: a line that continues another (it begins with a tab)
 * stands behind it in parentheses, the next message behind a semicolon. Cut at size, always NUL-terminated.
 */
void fault_one_line(char *out, size_t size, const char *message);

/* The class as a lower-case word ("retry"). Returned pointer is static. */
const char *fault_class_name(enum fault_class class);

#endif
