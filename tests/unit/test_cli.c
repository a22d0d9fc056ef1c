/* test_cli.c: the manual, the configuration's JSON Schema and the README say what the tables say. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/cli.h"

/* A file of the source tree; the caller frees. */
static char *source(const char *path) {
    char name[1024];
    const char *root_end = strstr(__FILE__, "tests/unit/");
    cr_assert_not_null(root_end);
    snprintf(name, sizeof name, "%.*s%s", (int)(root_end - __FILE__), __FILE__, path);
    FILE *file = fopen(name, "rb");
    cr_assert_not_null(file, "cannot open %s", name);
    char *text = calloc(1, 1 << 20);
    cr_assert_gt(fread(text, 1, (1 << 20) - 1, file), 0);
    fclose(file);
    return text;
}

/* The manual without its markup: \- is a hyphen, \fX and the line's macro are nothing. */
static char *manual(void) {
    char *raw = source("deploy/denpyo.1"), *out = raw;
    for (const char *in = raw; *in;) {
        if (in[0] == '\\' && in[1] == 'f' && in[2])
            in += 3;
        else if (in[0] == '\\' && in[1] == 'e') {
            *out++ = '\\';
            in += 2;
        } else if (in[0] == '\\' && in[1])
            in++;
        else
            *out++ = *in++;
    }
    *out = 0;
    return raw;
}

static void assert_says(const char *text, const char *what, const char *needle) {
    cr_assert_not_null(strstr(text, needle), "%s does not say \"%s\"", what, needle);
}

/* The help texts begin in lower case, the manual's sentences do not. */
static void assert_explains(const char *text, const char *what, const char *help) {
    assert_says(text, what, help + 1);
}

Test(cli, manual_describes_every_option) {
    char *text = manual();
    for (size_t i = 0; i < config_option_count; i++) {
        const struct config_option *option = &config_options[i];
        char name[CONFIG_NAME_SIZE], line[200];
        assert_says(text, "the manual", config_flag(option, name));
        assert_says(text, "the manual", config_variable(option, name));
        assert_explains(text, "the manual", option->help);
        if (option->type == CONFIG_INTEGER) {
            snprintf(line, sizeof line, "%s; %lld to %lld %s, default %s.", name, (long long)option->min,
                     (long long)option->max, option->unit, option->fallback);
            assert_says(text, "the manual", line);
        } else if (*option->fallback) {
            snprintf(line, sizeof line, "%s; %s%s%sdefault %s.", name, option->choices ? "one of " : "",
                     option->choices ? option->choices : "", option->choices ? ", " : "", option->fallback);
            assert_says(text, "the manual", line);
        }
    }
    free(text);
}

Test(cli, manual_describes_no_other_option) {
    char *text = manual();
    size_t described = 0;
    for (const char *at = strstr(text, ".SH OPTIONS"); (at = strstr(at, ".TP\n.B --")) != NULL; at++)
        described++;
    cr_assert_eq(described, config_option_count + 1, "the options and --kafka");
    free(text);
}

Test(cli, manual_describes_every_command_and_exit_code) {
    char *text = manual();
    assert_says(text, "the manual", "\"denpyo " DENPYO_VERSION "\"");
    for (size_t i = 0; i < cli_command_count; i++) {
        const struct cli_command *command = &cli_commands[i];
        char line[100];
        snprintf(line, sizeof line, ".SS %s%s%s\n", command->name, command->words ? " " : "",
                 command->words ? command->words : "");
        assert_says(text, "the manual", line);
        assert_says(text, "the manual", command->summary);
        if (command->details)
            assert_says(text, "the manual", command->details);
        for (size_t j = 0; j < CLI_FLAGS_MAX && command->flags[j].name; j++) {
            assert_says(text, "the manual", command->flags[j].name);
            assert_explains(text, "the manual", command->flags[j].help);
        }
    }
    for (size_t i = 0; i < cli_exit_count; i++) {
        char line[200];
        snprintf(line, sizeof line, ".B %d\n", (int)cli_exits[i].code);
        assert_says(text, "the manual", line);
        assert_explains(text, "the manual", cli_exits[i].meaning);
    }
    free(text);
}

/* The schema's description of an option, found by the nested or by the dotted way. */
static const json_t *nested(const json_t *properties, const char *name) {
    const char *dot = strchr(name, '.');
    if (dot == NULL)
        return json_object_get(properties, name);
    char group[CONFIG_NAME_SIZE];
    snprintf(group, sizeof group, "%.*s", (int)(dot - name), name);
    return json_object_get(json_object_get(json_object_get(properties, group), "properties"), dot + 1);
}

static void assert_default(const json_t *found, const struct config_option *option) {
    static const char *const types[] = {
        [CONFIG_TEXT] = "string", [CONFIG_INTEGER] = "integer", [CONFIG_BOOLEAN] = "boolean"};
    char value[CONFIG_NAME_SIZE];
    const json_t *fallback = json_object_get(found, "default");
    if (json_is_integer(fallback))
        snprintf(value, sizeof value, "%lld", (long long)json_integer_value(fallback));
    else if (json_is_boolean(fallback))
        snprintf(value, sizeof value, "%s", json_is_true(fallback) ? "true" : "false");
    else
        snprintf(value, sizeof value, "%s", json_string_value(fallback));
    cr_assert_str_eq(value, option->fallback, "%s", option->name);
    if (option->type != CONFIG_CHOICE)
        cr_assert_str_eq(json_string_value(json_object_get(found, "type")), types[option->type], "%s", option->name);
}

static void assert_choices(const json_t *found, const struct config_option *option) {
    char joined[200] = "";
    size_t i;
    json_t *word;
    json_array_foreach(json_object_get(found, "enum"), i, word) {
        size_t size = strlen(joined);
        snprintf(joined + size, sizeof joined - size, "%s%s", i > 0 ? "|" : "", json_string_value(word));
    }
    cr_assert_str_eq(joined, option->choices ? option->choices : "", "%s", option->name);
}

Test(cli, json_schema_describes_every_option_and_no_other) {
    char *text = source("schemas/config.schema.json");
    json_error_t error;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    cr_assert_not_null(root, "%s", error.text);
    const json_t *properties = json_object_get(root, "properties");
    size_t groups = 0, dotted = 0, plain = 0;
    for (size_t i = 0; i < config_option_count; i++) {
        const struct config_option *option = &config_options[i];
        const json_t *found = nested(properties, option->name);
        if (strcmp(option->name, "config") == 0) {
            cr_assert_null(found, "a file cannot name another one");
            continue;
        }
        cr_assert_not_null(found, "the schema lacks %s", option->name);
        cr_assert_str_eq(json_string_value(json_object_get(found, "description")), option->help);
        if (option->type == CONFIG_INTEGER) {
            cr_assert_eq(json_integer_value(json_object_get(found, "minimum")), option->min, "%s", option->name);
            cr_assert_eq(json_integer_value(json_object_get(found, "maximum")), option->max, "%s", option->name);
        }
        assert_default(found, option);
        assert_choices(found, option);
        if (strchr(option->name, '.')) {
            cr_assert_not_null(json_object_get(properties, option->name), "the schema lacks the dotted %s",
                               option->name);
            dotted++;
        } else {
            plain++;
        }
    }
    const char *name;
    json_t *property;
    size_t inner = 0;
    json_object_foreach((json_t *)(uintptr_t)properties, name, property) {
        groups += json_object_get(property, "properties") != NULL;
        inner += json_object_size(json_object_get(property, "properties"));
    }
    cr_assert_eq(inner, dotted);
    cr_assert_eq(json_object_size(properties), plain + dotted + groups + 2, "… and $schema and kafka");
    json_decref(root);
    free(text);
}

Test(cli, readme_lists_every_command_and_option) {
    char *text = source("README.md");
    for (size_t i = 0; i < cli_command_count; i++) {
        char line[100];
        snprintf(line, sizeof line, "denpyo %s", cli_commands[i].name);
        assert_says(text, "README.md", line);
    }
    for (size_t i = 0; i < config_option_count; i++) {
        char line[CONFIG_NAME_SIZE + 2];
        snprintf(line, sizeof line, "`%s`", config_options[i].name);
        assert_says(text, "README.md", line);
    }
    free(text);
}

Test(cli, flags_are_taken_up_to_the_end_of_options) {
    char *argv[] = {(char[]){"--json"}, (char[]){"x"}, (char[]){"--json"}, (char[]){"--"}, (char[]){"--json"}};
    int argc = 5;
    cr_assert(cli_take_flag(&argc, argv, "--json"));
    cr_assert_eq(argc, 3);
    cr_assert_str_eq(argv[0], "x");
    cr_assert_str_eq(argv[2], "--json");
    cr_assert_not(cli_take_flag(&argc, argv, "--watch"));
}

Test(cli, commands_are_found_or_the_nearest_is_named) {
    struct fault f = {0};
    cr_assert_str_eq(cli_find("config", &f)->name, "config");
    cr_assert_null(cli_find("confg", &f));
    cr_assert_not_null(strstr(f.text, "did you mean \"config\"?"));
    cr_assert_eq(f.class, FAULT_USAGE);
}
