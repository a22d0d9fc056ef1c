/* test_outcome_table.c: what may be persisted is never blamed or sent blindly, outages cost no attempt, no row is dead.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/kafka_code.h"
#include "denpyo/outcome_table.h"

enum { LOWEST = -250, HIGHEST = 150 };

static enum outcome becomes(enum outcome_report report, int code) {
    return outcome_table_find(report, code)->becomes;
}

Test(outcome_table, every_row_is_reached_by_its_own_code) {
    for (size_t i = 0; i < outcome_table_count; i++) {
        const struct outcome_table_row *row = &outcome_table[i];
        cr_assert_eq(outcome_table_find(row->report, row->code), row, "row %zu is hidden by another", i);
    }
}

Test(outcome_table, case_08_the_status_not_the_code_says_whether_it_may_be_there) {
    for (int code = LOWEST; code <= HIGHEST; code++) {
        cr_assert_eq(becomes(OUTCOME_MAYBE_PERSISTED, code), OUTCOME_UNKNOWN, "%d", code);
        cr_assert_eq(becomes(OUTCOME_ACKNOWLEDGED, code), OUTCOME_DISPATCHED, "%d", code);
        cr_assert_neq(becomes(OUTCOME_NOT_PERSISTED, code), OUTCOME_UNKNOWN, "%d", code);
        cr_assert_neq(becomes(OUTCOME_NOT_PERSISTED, code), OUTCOME_DISPATCHED, "%d", code);
        cr_assert_neq(becomes(OUTCOME_REFUSED, code), OUTCOME_DISPATCHED, "%d", code);
    }
}

Test(outcome_table, case_04_an_outage_is_nobodys_attempt) {
    const int outages[] = {KAFKA_CODE_TIMED_OUT_MESSAGE, KAFKA_CODE_PURGE_QUEUE, KAFKA_CODE_PURGE_INFLIGHT};
    for (size_t i = 0; i < sizeof outages / sizeof *outages; i++)
        cr_assert_eq(becomes(OUTCOME_NOT_PERSISTED, outages[i]), OUTCOME_WAITS);
    cr_assert_eq(becomes(OUTCOME_REFUSED, KAFKA_CODE_QUEUE_FULL), OUTCOME_WAITS);
}

Test(outcome_table, only_what_is_the_messages_own_is_rejected) {
    const int own[] = {KAFKA_CODE_TOO_LARGE, KAFKA_CODE_BAD_TIMESTAMP, KAFKA_CODE_INVALID_RECORD};
    for (int code = LOWEST; code <= HIGHEST; code++) {
        bool is_own = false;
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            is_own = is_own || own[i] == code;
        cr_assert_eq(becomes(OUTCOME_NOT_PERSISTED, code) == OUTCOME_REJECTED, is_own, "%d", code);
        cr_assert_neq(becomes(OUTCOME_METADATA, code), OUTCOME_REJECTED, "%d", code);
    }
}

Test(outcome_table, a_code_that_nobody_knows_is_tried_again) {
    cr_assert_eq(becomes(OUTCOME_NOT_PERSISTED, 12345), OUTCOME_FAILED);
    cr_assert_eq(becomes(OUTCOME_REFUSED, 12345), OUTCOME_FAILED);
    cr_assert_eq(becomes(OUTCOME_FATAL_ERROR, 12345), OUTCOME_FATAL);
}

Test(outcome_table, what_no_message_is_to_blame_for_is_the_relays) {
    const int refusals[] = {KAFKA_CODE_CLUSTER_AUTHORIZATION, KAFKA_CODE_TRANSACTIONAL_ID_AUTHORIZATION};
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        cr_assert_eq(becomes(OUTCOME_NOT_PERSISTED, refusals[i]), OUTCOME_RELAY);
        cr_assert_eq(becomes(OUTCOME_FATAL_ERROR, refusals[i]), OUTCOME_RELAY);
    }
}

Test(outcome_table, the_readme_has_it_as_it_is_printed) {
    char name[1024], *printed;
    const char *root_end = strstr(__FILE__, "tests/unit/");
    size_t size;
    snprintf(name, sizeof name, "%.*sREADME.md", (int)(root_end - __FILE__), __FILE__);
    FILE *file = fopen(name, "rb"), *out = open_memstream(&printed, &size);
    static char text[1 << 20];
    cr_assert(file != NULL && out != NULL);
    cr_assert_gt(fread(text, 1, sizeof text - 1, file), 0);
    outcome_table_print(out);
    fclose(out);
    fclose(file);
    cr_assert_not_null(strstr(text, printed), "README.md lacks what \"denpyo help outcomes\" prints:\n%s", printed);
    free(printed);
}
