/* cli_show.c: `denpyo show`: did this message go out? One sentence, then what is known about it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/cli.h"
#include "denpyo/cli_message.h"
#include "denpyo/cli_view.h"

/*
 * What each state means for the one who asks. The sentence's {names} are the columns of outbox.status; `ok` is whether
 * nobody has to do anything, `needs_relay` whether a relay is what moves it on.
 */
struct answer {
    const char *state, *sentence;
    bool ok, needs_relay;
};
static const struct answer answers[] = {
    {"dispatched",
     "Yes: it went out to topic {topic}, partition {partition}, offset {offset}; Kafka's receipt is of {settled_at}.",
     true, false},
    {"requesting", "Perhaps: it was claimed at {requested_at}, may be on its way, and Kafka has not confirmed it yet.",
     true, true},
    {"pending", "Not yet: it is committed and waits for its turn.", true, true},
    {"delayed", "Not yet: it is to be sent at {next_attempt_at}.", true, true},
    {"held", "Not yet: it waits for message {waits_for_id}, an earlier one of its {held_by} that has not gone out.",
     false, true},
    {"failed", "Not yet: trying failed ({error_code}: {error}); the next try is at {next_attempt_at}.", false, true},
    {"rejected", "No: it can never be sent as it is ({error_code}: {error}); a person has to decide.", false, false},
    {"skipped", "No: a person decided that it is not sent ({error}).", false, false},
};

/* For the state of a schema that is newer than this denpyo. */
static const struct answer unknown = {"", "Its state is {state}, which this denpyo does not know.", false, false};

static const struct answer pruned = {"dispatched",
                                     "Yes: it went out to topic {topic}, partition {partition}, offset {offset}; "
                                     "Kafka's receipt is of {settled_at}. The "
                                     "message itself was removed since.",
                                     true, false};

static const char no_relay[] = " No relay leads now: \"denpyo run\" starts one.";

/* The sentence with the row's values for {names}; the caller frees. */
static char *sentence_of(const struct answer *answer, const json_t *row) {
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        abort();
    for (const char *at = answer->sentence; *at; at++) {
        size_t length = *at == '{' ? strcspn(at, "}") : 0;
        if (length == 0) {
            fputc(*at, out);
            continue;
        }
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)length - 1, at + 1);
        const json_t *value = json_object_get(row, name);
        if (json_is_integer(value))
            fprintf(out, "%lld", (long long)json_integer_value(value));
        else
            fputs(json_is_string(value) ? json_string_value(value) : "unknown", out);
        at += length;
    }
    if (fclose(out) != 0)
        abort();
    return text;
}

/* False as well when nobody can be asked: then there is nothing to hint at. */
static bool lacks_relay(struct cli_view *view) {
    struct fault f = {0};
    json_t *relays = cli_view_query(view, "queries/status_relays.sql", NULL, &f);
    bool lacks = relays != NULL && !cli_view_has_leader(relays);
    json_decref(relays);
    return lacks;
}

static void put_details(json_t *row) {
    const char *name;
    json_t *value;
    putchar('\n');
    json_object_foreach(row, name, value) {
        if (json_is_null(value))
            continue;
        printf("%-16s ", name);
        if (json_is_string(value))
            cli_view_put(json_string_value(value));
        else
            cli_view_print(value, true);
        putchar('\n');
    }
}

static int give(struct cli_view *view, const struct answer *answer, json_t *row, bool json) {
    char *sentence = sentence_of(answer, row);
    const char *hint = answer->needs_relay && lacks_relay(view) ? no_relay : "";
    if (json) {
        json_t *all = json_pack("{s:s+}", "answer", sentence, hint);
        json_object_update(all, row);
        cli_view_print(all, false);
        putchar('\n');
        json_decref(all);
    } else {
        cli_view_put(sentence);
        puts(hint);
        put_details(row);
    }
    free(sentence);
    return answer->ok ? CLI_OK : CLI_TROUBLE;
}

/* The first row of the query, or NULL: with a fault if f->class is set, else there is none. The caller releases it. */
static json_t *first_row(struct cli_view *view, const char *path, const char *parameter, struct fault *f) {
    json_t *rows = cli_view_query(view, path, parameter, f);
    json_t *row = json_incref(json_array_get(rows, 0));
    json_decref(rows);
    return row;
}

static const struct answer *answer_to(const json_t *row) {
    const char *state = cli_view_text(row, "state");
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        if (strcmp(answers[i].state, state) == 0)
            return &answers[i];
    return &unknown;
}

static int show(struct cli_view *view, const char *word, bool json, struct fault *f) {
    bool number = cli_message_is_number(word);
    const struct answer *answer = &pruned;
    json_t *row = first_row(view, number ? "queries/show_by_id.sql" : "queries/show_by_message_id.sql", word, f);
    if (row)
        answer = answer_to(row);
    else if (f->class == FAULT_NONE)
        row = first_row(view, number ? "queries/show_receipt_by_id.sql" : "queries/show_receipt_by_message_id.sql",
                        word, f);
    int code = CLI_TROUBLE;
    if (row)
        code = give(view, answer, row, json);
    else if (f->class == FAULT_NONE)
        cli_message_missing(word, f);
    json_decref(row);
    return f->class == FAULT_NONE ? code : cli_fail(f);
}

int cli_show(int argc, char **argv) {
    bool json = cli_take_flag(&argc, argv, "--json");
    struct config c;
    struct fault f = {0};
    const char *word;
    if (!cli_configure(&c, argc, argv, 1, &word, &f))
        return cli_fail(&f);
    int code;
    if (cli_message_check("show", word, &f)) {
        struct cli_view view = {.config = &c};
        code = show(&view, word, json, &f);
        cli_view_close(&view);
    } else {
        code = cli_fail(&f);
    }
    config_free(&c);
    return code;
}
