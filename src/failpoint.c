/* failpoint.c: the table of failpoints, and the one order that a process follows. */
#include "denpyo/failpoint.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANY "any"           /* in both modes of delivery */
#define RECOVERY "recovery" /* in both, while a new leader looks what the one before left */
#define EXACTLY_ONCE "exactly_once"

static const struct {
    const char *name, *where, *sense;
} points[FAILPOINTS] = {
    [FAILPOINT_LEASE_TAKE_SENT] = {"lease_take_sent", ANY, "the lease is asked for, and perhaps taken"},
    [FAILPOINT_LEASE_TAKEN] = {"lease_taken", RECOVERY, "the lease is taken, nothing is known yet"},
    [FAILPOINT_LEASE_RENEW_SENT] = {"lease_renew_sent", ANY, "the lease is perhaps renewed"},
    [FAILPOINT_LEASE_RENEWED] = {"lease_renewed", ANY, "the lease is renewed"},
    [FAILPOINT_LEASE_RELEASE] = {"lease_release", ANY, "all is done, the lease is still held"},
    [FAILPOINT_LEASE_RELEASE_SENT] = {"lease_release_sent", ANY, "the lease is perhaps given back"},
    [FAILPOINT_IDENTITY_FLOOR_SENT] = {"identity_floor_sent", ANY, "after a move: the floor is perhaps set"},
    [FAILPOINT_IDENTITY_FLOOR_COMMITTED] = {"identity_floor_committed", ANY, "after a move: the floor is set"},
    [FAILPOINT_IDENTITY_SWEPT] = {"identity_swept", ANY, "after a move: the past is swept, the move not on record"},
    [FAILPOINT_IDENTITY_RECORDED] = {"identity_recorded", ANY, "where the outbox lives is on record"},
    [FAILPOINT_LOAD_ANEW] = {"load_anew", ANY, "the producer is to be made anew, and all loaded again"},
    [FAILPOINT_LOAD_CURSOR] = {"load_cursor", RECOVERY, "the cursor is read, no open batch is"},
    [FAILPOINT_LOAD_ROWS] = {"load_rows", RECOVERY, "the rows of an open batch are read"},
    [FAILPOINT_LOOKUP_ASKED] = {"lookup_asked", RECOVERY, "what arrived is to be looked up"},
    [FAILPOINT_LOOKUP_MARKS] = {"lookup_marks", EXACTLY_ONCE,
                                "a look-up knows what the transactions say, and has read no topic"},
    [FAILPOINT_LOOKUP_RECORD] = {"lookup_record", RECOVERY, "a record was read, others were not"},
    [FAILPOINT_LOOKUP_ENDED] = {"lookup_ended", RECOVERY, "the look-up has its answer"},
    [FAILPOINT_LOOKUP_TAKEN] = {"lookup_taken", RECOVERY, "who arrived is known and has no receipt"},
    [FAILPOINT_LOAD_DONE] = {"load_done", RECOVERY, "open batches go on, nothing is sent yet"},
    [FAILPOINT_ANSWER_HALF_READ] = {"answer_half_read", ANY, "the database has answered in part, the rest is awaited"},
    [FAILPOINT_CLAIM_PAGE_SENT] = {"claim_page_sent", ANY, "a page is asked for"},
    [FAILPOINT_CLAIM_PARKED_SENT] = {"claim_parked_sent", ANY, "a page of parked rows is asked for"},
    [FAILPOINT_CLAIM_PAGE_READ] = {"claim_page_read", ANY, "a page is read and not claimed"},
    [FAILPOINT_CLAIM_COMMIT] = {"claim_commit", ANY, "a claim is to be committed"},
    [FAILPOINT_CLAIM_COMMIT_SENT] = {"claim_commit_sent", ANY, "a claim is perhaps committed"},
    [FAILPOINT_CLAIM_COMMITTED] = {"claim_committed", ANY, "a claim is committed, nothing of it sent"},
    [FAILPOINT_PRODUCE_ROW] = {"produce_row", ANY, "the client has a row, its group is held back"},
    [FAILPOINT_PRODUCE_GROUP] = {"produce_group", ANY, "groups are let go"},
    [FAILPOINT_REPORT_TAKEN] = {"report_taken", ANY, "a row's report is in, others are not"},
    [FAILPOINT_GROUP_DECIDED] = {"group_decided", ANY, "all reports of a group are in"},
    [FAILPOINT_SETTLE_PARK] = {"settle_park", ANY, "a batch's receipts are written, its parked rows are not"},
    [FAILPOINT_SETTLE_PARKED] = {"settle_parked", ANY, "a batch's parked rows are written, not committed"},
    [FAILPOINT_SETTLE_UNPARKED] = {"settle_unparked", ANY, "what was parked has its receipt, not committed"},
    [FAILPOINT_SETTLE_COMMIT] = {"settle_commit", ANY, "a settlement is to be committed"},
    [FAILPOINT_SETTLE_COMMIT_SENT] = {"settle_commit_sent", ANY, "a settlement is perhaps committed"},
    [FAILPOINT_SETTLE_COMMITTED] = {"settle_committed", RECOVERY, "a settlement is committed, later batches are open"},
    [FAILPOINT_TXN_FENCE_SENT] = {"txn_fence_sent", EXACTLY_ONCE, "the producers before are perhaps fenced off"},
    [FAILPOINT_TXN_FENCED] = {"txn_fenced", EXACTLY_ONCE, "the producers before are fenced off"},
    [FAILPOINT_TXN_BEGIN] = {"txn_begin", EXACTLY_ONCE, "a transaction is to begin"},
    [FAILPOINT_TXN_BEGUN] = {"txn_begun", EXACTLY_ONCE, "a transaction has begun, nothing of it is sent"},
    [FAILPOINT_TXN_COMMIT] = {"txn_commit", EXACTLY_ONCE, "a transaction is to be committed"},
    [FAILPOINT_TXN_COMMIT_SENT] = {"txn_commit_sent", EXACTLY_ONCE, "a transaction is perhaps committed"},
    [FAILPOINT_TXN_MARKED] = {"txn_marked", EXACTLY_ONCE, "a transaction has its mark, and is to be committed"},
    [FAILPOINT_TXN_COMMITTED] = {"txn_committed", EXACTLY_ONCE, "a transaction is committed, without receipts"},
    [FAILPOINT_TXN_ABORT_SENT] = {"txn_abort_sent", EXACTLY_ONCE, "a transaction is perhaps aborted"},
    [FAILPOINT_TXN_ABORTED] = {"txn_aborted", EXACTLY_ONCE, "a transaction is aborted, its rows not taken back"},
    [FAILPOINT_SWEEP_SENT] = {"sweep_sent", ANY, "a step of the sweep is under way"},
    [FAILPOINT_SWEEP_ANSWERED] = {"sweep_answered", ANY, "the sweep has parked what it found"},
};

static atomic_long passed[FAILPOINTS];

/* The order; set before any thread starts. */
static size_t ordered = FAILPOINTS;
static long ordered_passing;
static int ordered_signal;

void failpoint_pass(enum failpoint point) {
    long passing = atomic_fetch_add(&passed[point], 1) + 1;
    if (point != ordered || passing != ordered_passing)
        return;
    fprintf(stderr, "failpoint %s, passing %ld: signal %d\n", points[point].name, passing, ordered_signal);
    kill(getpid(), ordered_signal);
}

void failpoint_print(FILE *out) {
    for (size_t i = 0; i < FAILPOINTS; i++)
        fprintf(out, "%s\t%ld\t%s\t%s\n", points[i].name, atomic_load(&passed[i]), points[i].where, points[i].sense);
}

/* NAME: what stands before the first colon. */
static size_t find_point(const char *order, size_t size) {
    size_t i = 0;
    while (i < FAILPOINTS && (strlen(points[i].name) != size || strncmp(points[i].name, order, size) != 0))
        i++;
    return i;
}

bool failpoint_order(const char *order, struct fault *f) {
    if (strcmp(order, "count") == 0)
        return true;
    size_t size = strcspn(order, ":");
    size_t point = find_point(order, size);
    if (point == FAILPOINTS)
        return fault_set(f, FAULT_USAGE, "FAILPOINT",
                         "there is no failpoint \"%.*s\"; DENPYO_FAILPOINT=list prints those that are", (int)size,
                         order);
    const char *rest = order + size;
    long passing = 1;
    if (*rest == ':') {
        char *end;
        errno = 0;
        passing = strtol(rest + 1, &end, 10);
        if (end == rest + 1 || errno != 0 || passing < 1)
            return fault_set(f, FAULT_USAGE, "FAILPOINT", "\"%s\": after the failpoint comes its passing, 1 or more",
                             order);
        rest = end;
    }
    bool is_stop = strcmp(rest, ":stop") == 0;
    if (*rest != 0 && !is_stop && strcmp(rest, ":kill") != 0)
        return fault_set(f, FAULT_USAGE, "FAILPOINT", "\"%s\": the action is kill or stop", order);
    ordered_signal = is_stop ? SIGSTOP : SIGKILL;
    ordered_passing = passing;
    ordered = point;
    return true;
}
