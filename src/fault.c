/* fault.c: fills the error object that every fallible function hands back. */
#include "denpyo/fault.h"

#include <stdarg.h>
#include <stdio.h>

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

const char *fault_class_name(enum fault_class class) {
    return names[class];
}
