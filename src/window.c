/* window.c: moves the cursor from snapshot to snapshot so that each commit falls into exactly one window. */
#include "denpyo/window.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static char *copy_text(const char *text) {
    char *copy = strdup(text);
    if (copy == NULL)
        abort();
    return copy;
}

/* Digits up to `stop` (or the end of the text), a number of at least 1; *at moves behind them. */
static bool read_xid(const char **at, uint64_t *out) {
    uint64_t value = 0;
    const char *start = *at;
    for (; **at >= '0' && **at <= '9'; ++*at) {
        uint64_t digit = (uint64_t)(**at - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    return *at > start && value > 0;
}

static bool read_char(const char **at, char expected) {
    if (**at != expected)
        return false;
    ++*at;
    return true;
}

/* The list behind the second colon: ascending, within [xmin, xmax). */
static bool read_xip(const char *at, struct window_snapshot *s) {
    if (*at == 0)
        return true;
    size_t count = 1;
    for (const char *c = at; *c != 0; c++)
        count += *c == ',';
    s->xip = calloc(count, sizeof *s->xip);
    if (s->xip == NULL)
        abort();
    uint64_t least = s->xmin;
    while (s->xip_count < count) {
        uint64_t xid;
        if (s->xip_count > 0 && !read_char(&at, ','))
            return false;
        if (!read_xid(&at, &xid) || xid < least || xid >= s->xmax)
            return false;
        s->xip[s->xip_count++] = xid;
        least = xid + 1;
    }
    return *at == 0;
}

bool window_snapshot_parse(struct window_snapshot *out, const char *text, struct fault *f) {
    window_snapshot_free(out);
    const char *at = text;
    if (read_xid(&at, &out->xmin) && read_char(&at, ':') && read_xid(&at, &out->xmax) && read_char(&at, ':') &&
        out->xmin <= out->xmax && read_xip(at, out))
        return true;
    window_snapshot_free(out);
    return fault_set(f, FAULT_FATAL, "SNAPSHOT", "\"%s\" is not a PostgreSQL snapshot (xmin:xmax:xip,…).", text);
}

void window_snapshot_free(struct window_snapshot *s) {
    free(s->xip);
    memset(s, 0, sizeof *s);
}

static int compare_xids(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

bool window_snapshot_sees(const struct window_snapshot *s, uint64_t xid) {
    if (xid < s->xmin)
        return true;
    if (xid >= s->xmax)
        return false;
    return s->xip_count == 0 || bsearch(&xid, s->xip, s->xip_count, sizeof xid, compare_xids) == NULL;
}

bool window_contains(const struct window_snapshot *from, const struct window_snapshot *to, uint64_t xid) {
    return !window_snapshot_sees(from, xid) && window_snapshot_sees(to, xid);
}

void window_reset(struct window_cursor *c) {
    window_free(c);
    c->from = copy_text(WINDOW_START);
}

void window_load(struct window_cursor *c, const char *from, const char *to, int64_t upto_id, bool last_page) {
    struct window_cursor loaded = {.from = copy_text(last_page ? to : from)};
    if (!last_page) {
        loaded.to = copy_text(to);
        loaded.after_id = upto_id;
    }
    window_free(c);
    *c = loaded;
}

bool window_is_unchanged(const struct window_cursor *c, const char *current) {
    assert(c->to == NULL);
    return strcmp(c->from, current) == 0;
}

void window_open(struct window_cursor *c, const char *current) {
    assert(c->from != NULL && c->to == NULL);
    c->to = copy_text(current);
    c->after_id = c->floor_id;
}

void window_skip(struct window_cursor *c) {
    assert(c->to != NULL);
    free(c->from);
    c->from = c->to;
    c->to = NULL;
    c->after_id = 0;
}

void window_advance(struct window_cursor *c, int64_t upto_id, bool last_page) {
    assert(c->to != NULL && upto_id >= c->after_id);
    if (last_page)
        window_skip(c);
    else
        c->after_id = upto_id;
}

void window_free(struct window_cursor *c) {
    free(c->from);
    free(c->to);
    *c = (struct window_cursor){0};
}
