/* test_window.c: the cursor against a small model of PostgreSQL whose transactions commit, abort and crash at random.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/window.h"
#include "random.h"

enum { XIDS = 2000, ROWS = 2000, CLIENTS = 8, KEYS = 5, TEXT = 400, PAGE = 8, STEPS = 700 };
enum fate { RUNS, COMMITTED, ABORTED };

struct row {
    uint64_t xid;
    int64_t id;
    int tag; /* names this insert for the test: after a crash its xid and id can belong to another one */
    int key; /* 0: nobody orders it */
};

struct client {
    uint64_t xid;     /* 0 = none assigned yet */
    int64_t taken_id; /* 0 = none: taken from the sequence and not inserted yet */
};

/* The server; `durable*` is what a crash falls back to: a synchronous commit makes all before it durable. */
struct server {
    enum fate fates[XIDS];
    bool durable[XIDS];
    struct row rows[ROWS];
    struct client clients[CLIENTS];
    int locks[KEYS]; /* the client that holds the key's row + 1, or 0 */
    uint64_t next_xid, durable_xid, latest_completed;
    int64_t next_id, durable_id;
    size_t row_count, durable_rows;
    int next_tag;
};

/* The relay: the cursor in memory, what the newest batch row says, how often each insert was claimed. */
struct relay {
    struct window_cursor cursor;
    char from[TEXT], to[TEXT]; /* from empty: no batch */
    int64_t upto_id;
    bool last_page;
    int claims[ROWS];     /* by tag */
    int64_t newest[KEYS]; /* the highest id claimed of each key */
    int64_t window_id;    /* the highest id claimed of the open window */
};

static void server_start(struct server *s, uint64_t first_xid) {
    *s = (struct server){.next_xid = first_xid, .durable_xid = first_xid, .latest_completed = first_xid - 1};
    s->next_id = s->durable_id = 1;
}

static uint64_t assign_xid(struct server *s, struct client *c) {
    if (c->xid == 0)
        c->xid = s->next_xid++;
    cr_assert_lt(c->xid, XIDS);
    return c->xid;
}

static void complete(struct server *s, uint64_t xid, enum fate fate) {
    s->fates[xid] = fate;
    if (xid > s->latest_completed)
        s->latest_completed = xid;
}

static void client_end(struct server *s, struct client *c, enum fate fate) {
    if (c->xid != 0)
        complete(s, c->xid, fate);
    *c = (struct client){0};
    for (int key = 0; key < KEYS; key++) {
        if (s->locks[key] == (int)(c - s->clients) + 1)
            s->locks[key] = 0;
    }
}

/* An ordered key's row is locked first, and the id taken second; an unordered one may use an id taken long ago. */
static void client_insert(struct server *s, struct client *c, uint64_t *random) {
    int key = (int)random_below(random, KEYS), self = (int)(c - s->clients) + 1;
    if (key != 0 && s->locks[key] != 0 && s->locks[key] != self)
        key = 0;
    struct row *row = &s->rows[s->row_count++];
    cr_assert(s->row_count < ROWS && s->next_tag < ROWS);
    *row = (struct row){.xid = assign_xid(s, c), .key = key, .tag = s->next_tag++};
    if (key != 0)
        s->locks[key] = self;
    if (key == 0 && c->taken_id != 0) {
        row->id = c->taken_id;
        c->taken_id = 0;
    } else {
        row->id = s->next_id++;
    }
}

static void client_step(struct server *s, uint64_t *random) {
    struct client *c = &s->clients[random_below(random, CLIENTS)];
    switch (random_below(random, 8)) {
    case 0:
        assign_xid(s, c);
        break;
    case 1:
        if (c->taken_id == 0)
            c->taken_id = s->next_id++;
        break;
    case 2:
    case 3:
    case 4:
        client_insert(s, c, random);
        break;
    case 5:
        client_end(s, c, ABORTED);
        break;
    default:
        client_end(s, c, COMMITTED);
    }
}

static void server_commit_durably(struct server *s) {
    cr_assert_lt(s->next_xid, XIDS);
    complete(s, s->next_xid++, COMMITTED);
    for (uint64_t xid = 1; xid < s->next_xid; xid++)
        s->durable[xid] = s->fates[xid] != RUNS;
    s->durable_xid = s->next_xid;
    s->durable_id = s->next_id;
    s->durable_rows = s->row_count;
}

/* What is not durable is gone, and its xids and ids are handed out again. */
static void server_crash(struct server *s) {
    for (uint64_t xid = 1; xid < s->next_xid; xid++) {
        if (xid >= s->durable_xid)
            s->fates[xid] = RUNS;
        else if (!s->durable[xid])
            s->fates[xid] = ABORTED;
    }
    s->row_count = s->durable_rows;
    s->next_xid = s->durable_xid;
    s->latest_completed = s->durable_xid - 1;
    s->next_id = s->durable_id;
    memset(s->clients, 0, sizeof s->clients);
    memset(s->locks, 0, sizeof s->locks);
}

/* pg_current_snapshot()::text. */
static void server_snapshot(const struct server *s, char out[TEXT]) {
    uint64_t xmax = s->latest_completed + 1, xmin = xmax;
    for (int i = 0; i < CLIENTS; i++) {
        if (s->clients[i].xid != 0 && s->clients[i].xid < xmin)
            xmin = s->clients[i].xid;
    }
    int size = snprintf(out, TEXT, "%" PRIu64 ":%" PRIu64 ":", xmin, xmax);
    bool any = false;
    for (uint64_t xid = xmin; xid < xmax; xid++) {
        for (int i = 0; i < CLIENTS; i++) {
            if (s->clients[i].xid == xid) {
                size += snprintf(out + size, (size_t)(TEXT - size), "%s%" PRIu64, any ? "," : "", xid);
                any = true;
            }
        }
    }
}

static int compare_rows(const void *a, const void *b) {
    int64_t left = ((const struct row *)a)->id, right = ((const struct row *)b)->id;
    return (left > right) - (left < right);
}

/* The page query: committed rows of the window with an id above after_id, lowest first, at most `limit`. */
static size_t server_page(const struct server *s, const struct window_cursor *c, size_t limit, struct row *out) {
    static struct row found[ROWS];
    struct window_snapshot from = {0}, to = {0};
    struct fault f = {0};
    cr_assert(window_snapshot_parse(&from, c->from, &f) && window_snapshot_parse(&to, c->to, &f), "%s", f.text);
    size_t count = 0;
    for (size_t i = 0; i < s->row_count; i++) {
        const struct row *row = &s->rows[i];
        if (s->fates[row->xid] == COMMITTED && row->id > c->after_id && window_contains(&from, &to, row->xid))
            found[count++] = *row;
    }
    window_snapshot_free(&from);
    window_snapshot_free(&to);
    qsort(found, count, sizeof *found, compare_rows);
    if (count > limit)
        count = limit;
    memcpy(out, found, count * sizeof *found);
    return count;
}

static void relay_reload(struct relay *r) {
    if (r->from[0] == 0)
        window_reset(&r->cursor);
    else
        window_load(&r->cursor, r->from, r->to, r->upto_id, r->last_page);
    r->window_id = r->cursor.after_id;
}

static void relay_claim(struct relay *r, struct server *s, const struct row *rows, size_t count, bool last_page) {
    int64_t upto_id = count > 0 ? rows[count - 1].id : r->cursor.after_id;
    server_commit_durably(s);
    snprintf(r->from, TEXT, "%s", r->cursor.from);
    snprintf(r->to, TEXT, "%s", r->cursor.to);
    r->upto_id = upto_id;
    r->last_page = last_page;
    for (size_t i = 0; i < count; i++) {
        r->claims[rows[i].tag]++;
        cr_assert_gt(rows[i].id, r->window_id, "not in id order within a window");
        r->window_id = rows[i].id;
        if (rows[i].key != 0) {
            cr_assert_gt(rows[i].id, r->newest[rows[i].key], "a locked key's rows are out of order");
            r->newest[rows[i].key] = rows[i].id;
        }
    }
    window_advance(&r->cursor, upto_id, last_page);
}

/* Opens a window, or takes one page of it; dies now and then between reading and claiming. */
static void relay_step(struct relay *r, struct server *s, uint64_t *random) {
    if (r->cursor.to == NULL) {
        char current[TEXT];
        server_snapshot(s, current);
        if (!window_is_unchanged(&r->cursor, current)) {
            window_open(&r->cursor, current);
            r->window_id = 0;
        }
        return;
    }
    struct row rows[PAGE];
    size_t limit = 1 + random_below(random, PAGE), count = server_page(s, &r->cursor, limit, rows);
    if (random_below(random, 40) == 0)
        relay_reload(r);
    else if (count == 0 && (r->cursor.after_id == 0 || random_below(random, 2) == 0))
        window_skip(&r->cursor);
    else
        relay_claim(r, s, rows, count, count < limit);
}

static void relay_drain(struct relay *r, struct server *s, uint64_t *random) {
    char current[TEXT];
    do {
        relay_step(r, s, random);
        server_snapshot(s, current);
    } while (r->cursor.to != NULL || !window_is_unchanged(&r->cursor, current));
}

/* What went wrong: committed rows that were never claimed, rows claimed twice, rows of aborted transactions. */
struct verdict {
    int good, missing, doubled, invented;
};

static struct verdict judge(const struct server *s, const struct relay *r) {
    struct verdict v = {0};
    bool committed[ROWS] = {0};
    for (size_t i = 0; i < s->row_count; i++)
        committed[s->rows[i].tag] = s->fates[s->rows[i].xid] == COMMITTED;
    for (int tag = 0; tag < s->next_tag; tag++) {
        v.good += committed[tag] && r->claims[tag] == 1;
        v.missing += committed[tag] && r->claims[tag] == 0;
        v.doubled += r->claims[tag] > 1;
        v.invented += !committed[tag] && r->claims[tag] > 0;
    }
    return v;
}

/* `reloads`: whether the relay reads its cursor again after the server crashed, as it must. */
static struct verdict run(uint64_t seed, uint64_t server_crashes, bool reloads) {
    static struct server server;
    static struct relay relay;
    uint64_t random = seed;
    server_start(&server, 3 + random_below(&random, 50));
    window_free(&relay.cursor);
    relay = (struct relay){0};
    relay_reload(&relay);
    for (int step = 0; step < STEPS; step++) {
        if (random_below(&random, 4) == 0)
            relay_step(&relay, &server, &random);
        else
            client_step(&server, &random);
        if (server_crashes > 0 && random_below(&random, STEPS) < server_crashes) {
            server_crash(&server);
            if (reloads)
                relay_reload(&relay);
        }
    }
    for (int i = 0; i < CLIENTS; i++)
        client_end(&server, &server.clients[i], random_below(&random, 2) == 0 ? COMMITTED : ABORTED);
    relay_drain(&relay, &server, &random);
    struct verdict v = judge(&server, &relay);
    window_free(&relay.cursor);
    return v;
}

static void assert_exactly_once(uint64_t server_crashes) {
    int good = 0;
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        struct verdict v = run(seed, server_crashes, true);
        cr_assert(v.missing == 0 && v.doubled == 0 && v.invented == 0,
                  "seed %" PRIu64 ": %d missing, %d doubled, %d invented", seed, v.missing, v.doubled, v.invented);
        good += v.good;
    }
    cr_assert_gt(good, 50000, "only %d rows were committed: the model lost its teeth", good);
}

Test(window, every_committed_row_is_claimed_once) {
    assert_exactly_once(0);
}

Test(window, every_committed_row_is_claimed_once_across_server_crashes) {
    assert_exactly_once(5);
}

/* The control: the model must notice a relay that trusts its memory after the server handed out xids again. */
Test(window, a_cursor_kept_in_memory_over_a_server_crash_loses_rows) {
    int missing = 0;
    for (uint64_t seed = 1; seed <= 1000; seed++)
        missing += run(seed, 5, false).missing;
    cr_assert_gt(missing, 0);
}

Test(window, snapshots_parse_as_postgresql_prints_them) {
    struct window_snapshot s = {0};
    cr_assert(window_snapshot_parse(&s, "10:20:10,14,19", NULL));
    cr_expect_eq(s.xmin, 10);
    cr_expect_eq(s.xmax, 20);
    cr_assert_eq(s.xip_count, 3);
    cr_expect_eq(s.xip[2], 19);
    cr_assert(window_snapshot_parse(&s, "18446744073709551614:18446744073709551615:18446744073709551614", NULL));
    cr_expect_eq(s.xip[0], UINT64_MAX - 1);
    cr_assert(window_snapshot_parse(&s, WINDOW_START, NULL));
    cr_expect_eq(s.xip_count, 0);
    cr_expect_not(window_snapshot_sees(&s, 1));
    window_snapshot_free(&s);
}

Test(window, anything_else_is_no_snapshot) {
    static const char *const bad[] = {"",
                                      "1",
                                      "1:2",
                                      "1:2:x",
                                      "2:1:",
                                      "0:1:",
                                      "1:0:",
                                      "1:3:2,",
                                      "1:3:,2",
                                      "1:3:2 ",
                                      " 1:3:2",
                                      "1:9:4,4",
                                      "1:9:5,4",
                                      "5:9:4",
                                      "5:9:9",
                                      "-1:9:4",
                                      "1:3:2:",
                                      "+1:3:2",
                                      "1:18446744073709551616:",
                                      "1:99999999999999999999:",
                                      "1:9:4;5"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct window_snapshot s = {0};
        struct fault f = {0};
        cr_expect_not(window_snapshot_parse(&s, bad[i], &f), "accepted \"%s\"", bad[i]);
        cr_expect_eq(f.class, FAULT_FATAL);
        cr_expect(s.xip == NULL && s.xmax == 0);
    }
}

/* The window's condition as the SQL spells it: (xid >= xmax(S1) or xid = any(xip(S1))) and visible in S2. */
Test(window, containment_is_the_condition_of_the_page_query) {
    struct window_snapshot from = {0}, to = {0};
    cr_assert(window_snapshot_parse(&from, "10:20:10,14,19", NULL));
    cr_assert(window_snapshot_parse(&to, "14:25:14,22", NULL));
    for (uint64_t xid = 1; xid < 40; xid++) {
        bool listed = xid == 10 || xid == 14 || xid == 19;
        bool visible = xid < 25 && xid != 14 && xid != 22;
        cr_expect_eq(window_contains(&from, &to, xid), (xid >= 20 || listed) && visible, "xid %" PRIu64, xid);
    }
    window_snapshot_free(&from);
    window_snapshot_free(&to);
}

Test(window, the_cursor_moves_only_on_the_last_page) {
    struct window_cursor c = {0};
    window_reset(&c);
    cr_expect(window_is_unchanged(&c, WINDOW_START));
    window_open(&c, "5:5:");
    window_advance(&c, 7, false);
    cr_expect(strcmp(c.from, WINDOW_START) == 0 && strcmp(c.to, "5:5:") == 0 && c.after_id == 7);
    window_advance(&c, 9, true);
    cr_expect(strcmp(c.from, "5:5:") == 0 && c.to == NULL && c.after_id == 0);
    window_load(&c, "5:5:", "8:8:", 12, false);
    cr_expect(strcmp(c.from, "5:5:") == 0 && strcmp(c.to, "8:8:") == 0 && c.after_id == 12);
    window_load(&c, c.from, c.to, 13, true);
    cr_expect(strcmp(c.from, "8:8:") == 0 && c.to == NULL && c.after_id == 0);
    window_free(&c);
    cr_expect_null(c.from);
}
