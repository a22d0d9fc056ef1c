/* fault.c: fills the error object that every fallible function hands back. */
#include "denpyo/fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {
    [FAULT_NONE] = "none",     [FAULT_RETRY] = "retry", [FAULT_REJECT] = "reject",
    [FAULT_FENCED] = "fenced", [FAULT_USAGE] = "usage", [FAULT_FATAL] = "fatal",
};

bool fault_set(struct fault *f, enum fault_class class, const char *code, const char *format, ...) {
    if (f == NULL)
        return false;
    f->class = class;
    snprintf(f->code, sizeof f->code, "%s", code);
    va_list args;
    va_start(args, format);
    vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
    return false;
}

void fault_one_line(char *out, size_t size, const char *message) {
    size_t length = 0;
    bool is_inside = false; /* of parentheses */
    out[0] = 0;
    while (*message && length + 1 < size) {
        bool continues = *message == '\t';
        message += strspn(message, " \t\r");
        size_t line = strcspn(message, "\n"), kept = line;
        while (kept > 0 && strchr(" \t\r", message[kept - 1]) != NULL)
            kept--;
        if (kept > 0) {
            const char *joint = length == 0 ? "" : continues ? (is_inside ? "; " : " (") : (is_inside ? "); " : "; ");
            is_inside = length > 0 && continues;
            int written = snprintf(out + length, size - length, "%s%.*s", joint, (int)kept, message);
            length += (size_t)written < size - length ? (size_t)written : size - length - 1;
        }
        message += line + (message[line] == '\n');
    }
    if (is_inside && length + 1 < size)
        snprintf(out + length, size - length, ")");
    for (char *c = out; *c; c++)
        if (*c == '\t' || *c == '\r')
            *c = ' ';
}

const char *fault_class_name(enum fault_class class) {
    return names[class];
}
