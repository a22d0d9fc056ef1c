/* test_statement.c: every statement of the relay is embedded, named, numbered, and speaks of the schema it is given. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/statement.h"

/* The highest parameter number that a text mentions. */
static long parameters(const char *text) {
    long most = 0;
    for (const char *at = strchr(text, '$'); at != NULL; at = strchr(at + 1, '$')) {
        long number = strtol(at + 1, NULL, 10);
        most = number > most ? number : most;
    }
    return most;
}

Test(statement, each_has_its_own_name_and_place) {
    struct statements s;
    statements_init(&s, "outbox");
    for (unsigned i = 0; i < STATEMENT_COUNT; i++) {
        cr_assert_eq(s.list[i].index, i);
        cr_assert_leq(parameters(s.list[i].text), PG_PARAMETERS, "%s", s.list[i].name);
        for (unsigned k = 0; k < i; k++)
            cr_assert_str_neq(s.list[i].name, s.list[k].name);
    }
    statements_free(&s);
}

Test(statement, the_schemas_name_is_quoted_into_all) {
    struct statements s;
    statements_init(&s, "My \"own\"");
    cr_assert_not_null(strstr(s.list[STATEMENT_CLAIM_BATCH].text, "\"My \"\"own\"\"\".batch"));
    for (unsigned i = 0; i < STATEMENT_COUNT; i++)
        cr_assert_null(strstr(s.list[i].text, ":\"schema\""), "%s", s.list[i].name);
    statements_free(&s);
}
