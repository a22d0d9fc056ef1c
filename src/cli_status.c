/* cli_status.c: `denpyo status`: what waits, who leads, and what is in trouble, on one screen. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "denpyo/cli.h"
#include "denpyo/cli_view.h"

#define WATCH_S 2
#define CLEAR_SCREEN "\033[H\033[2J"

/* Columns of the topic table; the first is text, the counts are numbers, the last two are ages. */
static const struct {
    const char *title, *name;
    bool is_age;
} columns[] = {
    {"PENDING", "pending", false},
    {"DELAYED", "delayed", false},
    {"HELD", "held", false},
    {"REQUESTING", "requesting", false},
    {"FAILED", "failed", false},
    {"REJECTED", "rejected", false},
    {"OLDEST WAITS", "oldest_pending_seconds", true},
    {"LAST SENT", "last_dispatched_seconds", true},
};
#define COLUMNS (sizeof columns / sizeof *columns)

static void put_cell(const json_t *topic, size_t column) {
    char cell[CLI_VIEW_AGE_SIZE];
    const json_t *value = json_object_get(topic, columns[column].name);
    if (columns[column].is_age)
        cli_view_age(value, cell);
    else
        snprintf(cell, sizeof cell, "%lld", (long long)json_integer_value(value));
    printf("  %*s", (int)strlen(columns[column].title) > 8 ? (int)strlen(columns[column].title) : 8, cell);
}

static void print_topics(const json_t *topics) {
    if (json_array_size(topics) == 0) {
        puts("The outbox is empty and nothing was sent yet.");
        return;
    }
    int width = (int)strlen("TOPIC");
    size_t i;
    json_t *topic;
    json_array_foreach(topics, i, topic) {
        int size = (int)strlen(cli_view_text(topic, "topic"));
        width = size > width ? size : width;
    }
    printf("%-*s", width, "TOPIC");
    for (size_t c = 0; c < COLUMNS; c++)
        printf("  %8s", columns[c].title);
    putchar('\n');
    json_array_foreach(topics, i, topic) {
        cli_view_put(cli_view_text(topic, "topic"));
        printf("%*s", width - (int)strlen(cli_view_text(topic, "topic")), "");
        for (size_t c = 0; c < COLUMNS; c++)
            put_cell(topic, c);
        putchar('\n');
    }
}

static void print_relays(const json_t *relays) {
    putchar('\n');
    if (json_array_size(relays) == 0)
        puts("No relay was ever started: \"denpyo run\" starts one.");
    size_t i;
    json_t *relay;
    json_array_foreach(relays, i, relay) {
        char heartbeat[CLI_VIEW_AGE_SIZE], lease[CLI_VIEW_AGE_SIZE];
        cli_view_age(json_object_get(relay, "heartbeat_seconds"), heartbeat);
        cli_view_age(json_object_get(relay, "lease_seconds"), lease);
        char line[600];
        if (json_is_true(json_object_get(relay, "has_lease")))
            snprintf(line, sizeof line,
                     "Relay \"%s\": led by %s (version %s), epoch %lld, lease for %s, last heard from %s ago.",
                     cli_view_text(relay, "name"), cli_view_text(relay, "holder_info"), cli_view_text(relay, "version"),
                     (long long)json_integer_value(json_object_get(relay, "epoch")), lease, heartbeat);
        else
            snprintf(line, sizeof line,
                     "Relay \"%s\": nobody leads; last heard from %s ago. \"denpyo run\" starts one.",
                     cli_view_text(relay, "name"), heartbeat);
        cli_view_put(line);
        putchar('\n');
    }
}

static void print_trouble(const json_t *trouble) {
    long long count = json_integer_value(json_object_get(trouble, "messages"));
    const char *code = cli_view_text(trouble, "error_code"), *topic = cli_view_text(trouble, "topic");
    const char *first = cli_view_text(trouble, "first_message_id");
    char age[CLI_VIEW_AGE_SIZE];
    cli_view_age(json_object_get(trouble, "since_seconds"), age);
    printf("  %s%s", cli_view_text(trouble, "problem"), *topic ? " in " : "");
    cli_view_put(topic);
    if (*first)
        printf(", %lld message%s", count, count == 1 ? "" : "s");
    printf(", for %s: ", age);
    cli_view_put(code);
    fputs(*code ? ": " : "", stdout);
    cli_view_put(cli_view_text(trouble, "detail"));
    if (*first)
        printf("\n    denpyo show %s", first);
    putchar('\n');
}

static bool has_pending(const json_t *topics) {
    size_t i;
    const json_t *topic;
    json_array_foreach(topics, i, topic) if (json_integer_value(json_object_get(topic, "pending")) > 0) return true;
    return false;
}

static void print_troubles(const json_t *topics, const json_t *relays, const json_t *troubles) {
    bool is_stalled = has_pending(topics) && !cli_view_has_leader(relays);
    puts(is_stalled || json_array_size(troubles) ? "\nTroubles:" : "No troubles.");
    if (is_stalled)
        puts("  messages wait and nobody leads: \"denpyo run\" starts a relay");
    size_t i;
    json_t *trouble;
    json_array_foreach(troubles, i, trouble) print_trouble(trouble);
}

/* One look: prints the three parts, or all as JSON. */
static bool print_once(struct cli_view *view, bool json, bool watch, struct fault *f) {
    json_t *topics = cli_view_query(view, "queries/status_topics.sql", NULL, f);
    json_t *relays = topics ? cli_view_query(view, "queries/status_relays.sql", NULL, f) : NULL;
    json_t *troubles = relays ? cli_view_query(view, "queries/status_troubles.sql", NULL, f) : NULL;
    bool ok = troubles != NULL;
    if (ok && json) {
        json_t *all = json_pack("{s:O, s:O, s:O}", "topics", topics, "relays", relays, "troubles", troubles);
        cli_view_print(all, watch);
        putchar('\n');
        json_decref(all);
    } else if (ok) {
        if (watch)
            fputs(isatty(STDOUT_FILENO) ? CLEAR_SCREEN : "\n", stdout);
        print_topics(topics);
        print_relays(relays);
        print_troubles(topics, relays, troubles);
    }
    fflush(stdout);
    json_decref(topics);
    json_decref(relays);
    json_decref(troubles);
    return ok;
}

/* Until interrupted, or nobody can read it any more; a database that goes away is waited for. */
static void watch_on(struct cli_view *view, bool json) {
    while (!ferror(stdout)) {
        nanosleep(&(struct timespec){.tv_sec = WATCH_S}, NULL);
        struct fault f = {0};
        if (!print_once(view, json, true, &f)) {
            cli_fail(&f);
            cli_view_close(view);
        }
    }
}

int cli_status(int argc, char **argv) {
    bool json = cli_take_flag(&argc, argv, "--json");
    bool watch = cli_take_flag(&argc, argv, "--watch");
    struct config c;
    struct fault f = {0};
    if (!cli_configure(&c, argc, argv, 0, NULL, &f))
        return cli_fail(&f);
    struct cli_view view = {.config = &c};
    bool ok = print_once(&view, json, watch, &f);
    if (ok && watch)
        watch_on(&view, json);
    cli_view_close(&view);
    config_free(&c);
    return ok ? CLI_OK : cli_fail(&f);
}
