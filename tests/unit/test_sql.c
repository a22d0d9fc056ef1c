/* test_sql.c: names are quoted wherever they stand, and the embedded files are what the migrations rely on. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/migrate.h"
#include "denpyo/sql.h"

static const struct sql_names odd = {.schema = "o\"u't", .writer = "w", .relay = "re lay", .reader = "R"};

static bool contains(const char *text, const char *part) {
    return strstr(text, part) != NULL;
}

Test(sql, identifiers_are_quoted) {
    static const struct {
        const char *name, *quoted;
    } cases[] = {
        {"outbox", "\"outbox\""}, {"Out Box", "\"Out Box\""}, {"a\"b", "\"a\"\"b\""}, {"", "\"\""}, {"a'b", "\"a'b\""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *quoted = sql_identifier(cases[i].name);
        cr_assert_str_eq(quoted, cases[i].quoted);
        free(quoted);
    }
}

Test(sql, schema_is_put_in_as_identifier_and_as_literal) {
    char *table = sql_text("0000_migrations.sql", &odd);
    cr_assert(contains(table, "create table \"o\"\"u't\".denpyo_migration"));
    free(table);
    char *state = sql_text("queries/migrate_state.sql", &odd);
    cr_assert(contains(state, "n.nspname = 'o\"u''t'"));
    free(state);
}

Test(sql, roles_are_put_in) {
    char *roles = sql_text("roles.sql", &odd);
    cr_assert(contains(roles, "array['w', 're lay', 'R']"));
    cr_assert(contains(roles, "to \"w\", \"re lay\", \"R\";"));
    free(roles);
}

Test(sql, no_name_is_left_open_and_a_cast_is_no_name) {
    for (size_t i = 0; i < sql_file_count; i++) {
        char *text = sql_text(sql_files[i].path, &odd);
        for (const char *at = text; (at = strchr(at, ':')) != NULL; at++)
            cr_assert(!((at[1] == '"' || at[1] == '\'') && islower((unsigned char)at[2])), "%s keeps %.20s",
                      sql_files[i].path, at);
        free(text);
    }
    char *views = sql_text("0003_views.sql", &odd);
    cr_assert(contains(views, "::xid8[]"));
    free(views);
}

Test(sql, names_that_are_not_given_stay) {
    char *roles = sql_text("roles.sql", &(struct sql_names){.schema = "s"});
    cr_assert(contains(roles, "to :\"writer\""));
    free(roles);
}

Test(sql, files_are_found_by_path_and_sorted) {
    cr_assert_null(sql_find("0001"));
    cr_assert_not_null(sql_find("0001_outbox.sql"));
    for (size_t i = 1; i < sql_file_count; i++)
        cr_assert_lt(strcmp(sql_files[i - 1].path, sql_files[i].path), 0);
    for (size_t i = 0; i < sql_file_count; i++)
        cr_assert_eq(strlen((const char *)sql_files[i].text), sql_files[i].size, "%s", sql_files[i].path);
}

Test(migrate, migrations_are_numbered_without_gaps_and_record_themselves) {
    for (int number = 1; number <= migrate_latest(); number++) {
        char prefix[16];
        snprintf(prefix, sizeof prefix, "%04d_", number);
        int found = 0;
        for (size_t i = 0; i < sql_file_count; i++) {
            if (strncmp(sql_files[i].path, prefix, 5) != 0)
                continue;
            found++;
            char record[120];
            snprintf(record, sizeof record, "denpyo_migration (version, name) values (%d, '%.*s');", number,
                     (int)strcspn(sql_files[i].path, "."), sql_files[i].path);
            cr_assert(contains((const char *)sql_files[i].text, record), "%s does not say: %s", sql_files[i].path,
                      record);
        }
        cr_assert_eq(found, 1, "%d files have number %d", found, number);
    }
}

Test(migrate, only_the_known_version_will_do) {
    int latest = migrate_latest();
    struct fault f = {0};
    cr_assert(migrate_judge(latest, "s", &f));
    cr_assert(!migrate_judge(latest - 1, "s", &f));
    cr_assert_eq(f.class, FAULT_FATAL);
    cr_assert_str_eq(f.code, "SCHEMA");
    cr_assert(contains(f.text, "denpyo init"));
    cr_assert(!migrate_judge(latest + 1, "s", &f));
    cr_assert(contains(f.text, "newer"));
}

Test(migrate, the_printed_script_is_one_transaction_of_all_files) {
    char *script;
    size_t size;
    FILE *out = open_memstream(&script, &size);
    migrate_print(out, &odd);
    fclose(out);
    const char *at = script;
    static const char *const parts[] = {"\\set ON_ERROR_STOP on\nbegin;\n",
                                        "pg_advisory_xact_lock",
                                        "create schema \"o\"\"u't\"",
                                        "create table \"o\"\"u't\".denpyo_migration",
                                        "create table \"o\"\"u't\".message",
                                        "function \"o\"\"u't\".publish",
                                        "create view \"o\"\"u't\".status",
                                        "grant usage on schema",
                                        "\ncommit;\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        at = strstr(at, parts[i]);
        cr_assert_not_null(at, "missing or out of order: %s", parts[i]);
    }
    free(script);
}
