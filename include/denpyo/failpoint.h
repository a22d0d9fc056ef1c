/* failpoint.h: named places where a test has the process die or stop; the binary that ships has none of them. */
#ifndef DENPYO_FAILPOINT_H
#define DENPYO_FAILPOINT_H

/*
 * denpyo-failpoints is denpyo with these calls compiled in (CMakeLists.txt defines DENPYO_FAILPOINTS for it alone); in
 * denpyo each is nothing at all. It reads one order from the variable DENPYO_FAILPOINT, before denpyo's configuration:
 *  1. NAME[:PASSING[:ACTION]]: at that passing of the point (1) do kill (SIGKILL; this one if none is given) or stop
 *     (SIGSTOP).
 *  2. list: print the table of points, and end.
 *  3. count: at the end of a run print the table, with how often each point was passed.
 */
#ifndef DENPYO_FAILPOINTS

#define failpoint_pass(point) ((void)0)

#else

#include <stdbool.h>
#include <stdio.h>

#include "denpyo/fault.h"

/* The table in failpoint.c says what each stands for. */
enum failpoint {
    FAILPOINT_LEASE_TAKE_SENT,
    FAILPOINT_LEASE_TAKEN,
    FAILPOINT_LEASE_RENEW_SENT,
    FAILPOINT_LEASE_RENEWED,
    FAILPOINT_LEASE_RELEASE,
    FAILPOINT_LEASE_RELEASE_SENT,
    FAILPOINT_IDENTITY_FLOOR_SENT,
    FAILPOINT_IDENTITY_FLOOR_COMMITTED,
    FAILPOINT_IDENTITY_SWEPT,
    FAILPOINT_IDENTITY_RECORDED,
    FAILPOINT_LOAD_ANEW,
    FAILPOINT_LOAD_CURSOR,
    FAILPOINT_LOAD_ROWS,
    FAILPOINT_LOOKUP_ASKED,
    FAILPOINT_LOOKUP_MARKS,
    FAILPOINT_LOOKUP_RECORD,
    FAILPOINT_LOOKUP_ENDED,
    FAILPOINT_LOOKUP_TAKEN,
    FAILPOINT_LOAD_DONE,
    FAILPOINT_ANSWER_HALF_READ,
    FAILPOINT_CLAIM_PAGE_SENT,
    FAILPOINT_CLAIM_PARKED_SENT,
    FAILPOINT_CLAIM_PAGE_READ,
    FAILPOINT_CLAIM_COMMIT,
    FAILPOINT_CLAIM_COMMIT_SENT,
    FAILPOINT_CLAIM_COMMITTED,
    FAILPOINT_PRODUCE_ROW,
    FAILPOINT_PRODUCE_GROUP,
    FAILPOINT_REPORT_TAKEN,
    FAILPOINT_GROUP_DECIDED,
    FAILPOINT_SETTLE_PARK,
    FAILPOINT_SETTLE_PARKED,
    FAILPOINT_SETTLE_UNPARKED,
    FAILPOINT_SETTLE_COMMIT,
    FAILPOINT_SETTLE_COMMIT_SENT,
    FAILPOINT_SETTLE_COMMITTED,
    FAILPOINT_TXN_FENCE_SENT,
    FAILPOINT_TXN_FENCED,
    FAILPOINT_TXN_BEGIN,
    FAILPOINT_TXN_BEGUN,
    FAILPOINT_TXN_COMMIT,
    FAILPOINT_TXN_COMMIT_SENT,
    FAILPOINT_TXN_MARKED,
    FAILPOINT_TXN_COMMITTED,
    FAILPOINT_TXN_ABORT_SENT,
    FAILPOINT_TXN_ABORTED,
    FAILPOINT_SWEEP_SENT,
    FAILPOINT_SWEEP_ANSWERED,
    FAILPOINTS
};

/* The process is at this point: counts it, and does here what was ordered. Any thread may call it. */
void failpoint_pass(enum failpoint point);

/* Takes an order as above, "list" excepted; false when it is none. */
bool failpoint_order(const char *order, struct fault *f) __attribute__((warn_unused_result));

/* One line a point: name, how often it was passed, where it can be passed, what it stands for; separated by tabs. */
void failpoint_print(FILE *out);

#endif
#endif
