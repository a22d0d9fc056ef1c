/* window.h: the cursor over commits: windows between two snapshots, taken page by page. */
#ifndef DENPYO_WINDOW_H
#define DENPYO_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "denpyo/fault.h"

/*
 * A pg_snapshot: xids below xmin are over, those at or above xmax were running or not begun, xip (ascending, within
 * [xmin, xmax)) were running. Zero-initialise; window_snapshot_free.
 */
struct window_snapshot {
    uint64_t xmin, xmax;
    uint64_t *xip;
    size_t xip_count;
};

/*
 * Parses PostgreSQL's text form "xmin:xmax:xip,xip,…"; FAULT_FATAL on anything else, *out is then empty. Frees what
 * *out held.
 */
bool window_snapshot_parse(struct window_snapshot *out, const char *text, struct fault *f)
    __attribute__((warn_unused_result));
void window_snapshot_free(struct window_snapshot *s);

/* As pg_visible_in_snapshot(xid, s): true if xid was over when s was taken. */
bool window_snapshot_sees(const struct window_snapshot *s, uint64_t xid);

/*
 * Whether a row of transaction `xid` belongs to the window (from, to]: over when `to` was taken, not yet when `from`
 * was. The row is visible if that end was a commit, so that each committed row is in exactly one window of a chain.
 */
bool window_contains(const struct window_snapshot *from, const struct window_snapshot *to, uint64_t xid);

#define WINDOW_START "1:1:" /* the snapshot before everything: no row was committed when it was taken */

/*
 * The cursor. Invariants:
 *  1. Everything visible in `from` is claimed. `to` is NULL between windows (nothing of a next window is claimed).
 *  2. In an open window (`to` not NULL) exactly the rows with id <= after_id are claimed.
 *  3. What is persisted (the newest batch row) equals this cursor, or `from` ran ahead of it over empty windows only.
 *     A server that crashed hands out unflushed xids again, so after any lost connection: window_load, or window_reset
 *     when there is no batch.
 *  4. Windows begin after floor_id: rows up to it are not theirs (they came from another cluster). Its owner sets it
 *     after window_reset or window_load; 0 = none.
 * Owns from and to. Zero-initialise, then window_reset or window_load. Ids begin at 1. The functions do not block;
 * those that are called in the wrong state abort.
 */
struct window_cursor {
    char *from;
    char *to;
    int64_t after_id;
    int64_t floor_id;
};

/* The cursor before anything was claimed. Frees what *c held when it is not zero. */
void window_reset(struct window_cursor *c);

/* As the newest batch row says: (window_from, window_to, upto_id, last_page). */
void window_load(struct window_cursor *c, const char *from, const char *to, int64_t upto_id, bool last_page);

/* True if the server's current snapshot says that nothing can have committed since `from`: same text. Between windows.
 */
bool window_is_unchanged(const struct window_cursor *c, const char *current);

/* Opens the window up to `current`; only between windows. */
void window_open(struct window_cursor *c, const char *current);

/* The open window holds no further row: `from` moves to `to` in memory only. */
void window_skip(struct window_cursor *c);

/* A page up to upto_id was claimed and is persisted; last_page closes the window. upto_id >= after_id. */
void window_advance(struct window_cursor *c, int64_t upto_id, bool last_page);

/* Leaves *c as if zero-initialised. */
void window_free(struct window_cursor *c);

#endif
