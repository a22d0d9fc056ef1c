/* migrate.c: runs the numbered files of schemas/ that a database has not seen, in order and under a lock. */
#include "denpyo/migrate.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* The number of a migration "0003_views.sql", 0 for any other path; "0000_…" run where they are missing, not by number.
 */
static int number_of(const char *path) {
    for (int i = 0; i < 4; i++)
        if (!isdigit((unsigned char)path[i]))
            return 0;
    return path[4] == '_' ? atoi(path) : 0;
}

int migrate_latest(void) {
    int latest = 0;
    for (size_t i = 0; i < sql_file_count; i++)
        if (number_of(sql_files[i].path) > latest)
            latest = number_of(sql_files[i].path);
    return latest;
}

bool migrate_judge(int version, const char *schema, struct fault *f) {
    int latest = migrate_latest();
    if (version < latest)
        return fault_set(f, FAULT_FATAL, "SCHEMA",
                         "schema \"%s\" has version %d, this denpyo needs %d: run \"denpyo init\"", schema, version,
                         latest);
    if (version > latest)
        return fault_set(f, FAULT_FATAL, "SCHEMA",
                         "schema \"%s\" has version %d, newer than the %d this denpyo knows: install a newer denpyo",
                         schema, version, latest);
    return true;
}

/* What is in the database under the schema's name. */
struct state {
    bool has_schema, has_migrations;
    int objects; /* relations and functions in the schema */
    int version;
};

/* Runs the embedded file `path`. */
static bool run_file(struct session *session, const char *path, const struct sql_names *names, struct fault *f) {
    char *script = sql_text(path, names);
    bool ok = session_run(session, script, f);
    free(script);
    return ok;
}

/* The rows of the embedded statement `path`. */
static bool query_file(struct session *session, const char *path, const struct sql_names *names,
                       struct session_result **out, struct fault *f) {
    char *sql = sql_text(path, names);
    bool ok = session_query(session, sql, 0, NULL, out, f);
    free(sql);
    return ok;
}

static bool read_state(struct session *session, const struct sql_names *names, struct state *state, struct fault *f) {
    struct session_result *rows;
    if (!query_file(session, "queries/migrate_state.sql", names, &rows, f))
        return false;
    *state = (struct state){.has_schema = session_text(rows, 0, 0)[0] == 't',
                            .has_migrations = session_text(rows, 0, 1)[0] == 't',
                            .objects = atoi(session_text(rows, 0, 2))};
    session_result_free(rows);
    if (!state->has_migrations)
        return true;
    if (!query_file(session, "queries/migrate_version.sql", names, &rows, f))
        return false;
    state->version = atoi(session_text(rows, 0, 0));
    session_result_free(rows);
    return true;
}

/* A schema of that name with somebody else's things in it; an empty one is ours to fill: a DBA may have made it for us.
 */
static bool refuse_foreign(const struct state *state, const char *schema, struct fault *f) {
    if (!state->has_schema || state->has_migrations || state->objects == 0)
        return true;
    return fault_set(f, FAULT_FATAL, "SCHEMA",
                     "schema \"%s\" exists and is not denpyo's: it has tables or functions but no list of migrations; "
                     "choose another name with --schema",
                     schema);
}

bool migrate_check(struct session *session, const struct sql_names *names, struct fault *f) {
    struct state state;
    if (!read_state(session, names, &state, f) || !refuse_foreign(&state, names->schema, f))
        return false;
    if (!state.has_migrations)
        return fault_set(f, FAULT_FATAL, "SCHEMA",
                         "there is no schema \"%s\" of denpyo's in this database: run \"denpyo init\"", names->schema);
    return migrate_judge(state.version, names->schema, f);
}

static bool apply(struct session *session, const struct sql_names *names, FILE *out, struct fault *f) {
    struct state state;
    if (!read_state(session, names, &state, f) || !refuse_foreign(&state, names->schema, f))
        return false;
    if (state.version > migrate_latest())
        return migrate_judge(state.version, names->schema, f);
    if (!state.has_schema) {
        if (!run_file(session, "0000_schema.sql", names, f))
            return false;
        fprintf(out, "schema \"%s\": created\n", names->schema);
    }
    if (!state.has_migrations && !run_file(session, "0000_migrations.sql", names, f))
        return false;
    for (size_t i = 0; i < sql_file_count; i++) {
        const char *path = sql_files[i].path;
        if (number_of(path) <= state.version)
            continue;
        if (!run_file(session, path, names, f))
            return false;
        fprintf(out, "migration %.*s: applied\n", (int)strcspn(path, "."), path);
    }
    if (state.version == migrate_latest())
        fprintf(out, "schema \"%s\": up to date, version %d\n", names->schema, state.version);
    return true;
}

/* A transaction that holds the lock of init. Its isolation is given: under another default it would not see what it
 * waited for. */
static bool begin(struct session *session, const struct sql_names *names, struct fault *f) {
    return session_run(session, "begin isolation level read committed read write", f) &&
           run_file(session, "queries/migrate_lock.sql", names, f);
}

/* Commits if all went well, else rolls back; what a broken connection says to that does not matter: it is over there,
 * too. */
static bool end(struct session *session, bool good, struct fault *f) {
    struct fault ignored = {0};
    if (good)
        return session_run(session, "commit", f);
    (void)!session_run(session, "rollback", &ignored);
    return false;
}

/* What a failed transaction said it did, it did not do: its lines are kept until it is committed. */
bool migrate_run(struct session *session, const struct sql_names *names, FILE *out, struct fault *f) {
    char *lines;
    size_t size;
    session_set_remedy(session, "GRANT CREATE ON DATABASE lets this user go on, or let somebody who may run what "
                                "\"denpyo init --print\" prints");
    FILE *steps = open_memstream(&lines, &size);
    if (steps == NULL)
        abort();
    bool good = begin(session, names, f) && apply(session, names, steps, f);
    good = end(session, good, f);
    if (fclose(steps) != 0)
        abort();
    if (good)
        fputs(lines, out);
    free(lines);
    return good;
}

bool migrate_roles(struct session *session, const struct sql_names *names, struct fault *f) {
    return end(session, begin(session, names, f) && run_file(session, "roles.sql", names, f), f);
}

static void print_file(FILE *out, const char *path, const struct sql_names *names) {
    char *text = sql_text(path, names);
    fputs(text, out);
    free(text);
}

/* `path`, unless the query `missing` says that it was run. */
static void print_if(FILE *out, const char *missing, const char *path, const struct sql_names *names) {
    print_file(out, missing, names);
    fputs("\\gset\n\\if :missing\n", out);
    print_file(out, path, names);
    fputs("\\endif\n\n", out);
}

void migrate_print(FILE *out, const struct sql_names *names) {
    fprintf(out,
            "-- The schema of denpyo " DENPYO_VERSION ", version %d, for psql. What is there already is skipped.\n"
            "\\set ON_ERROR_STOP on\n"
            "begin;\n",
            migrate_latest());
    print_file(out, "queries/migrate_lock.sql", names);
    print_if(out, "queries/migrate_missing_schema.sql", "0000_schema.sql", names);
    print_if(out, "queries/migrate_missing_list.sql", "0000_migrations.sql", names);
    for (size_t i = 0; i < sql_file_count; i++) {
        const char *path = sql_files[i].path;
        if (number_of(path) == 0)
            continue;
        fprintf(out, "\\set version %d\n", number_of(path));
        print_if(out, "queries/migrate_missing.sql", path, names);
    }
    print_file(out, "roles.sql", names);
    fputs("commit;\n", out);
}
