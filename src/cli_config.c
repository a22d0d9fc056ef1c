/* cli_config.c: `denpyo config`: the effective configuration, each value with its origin, passwords masked. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/cli.h"
#include "denpyo/config_mask.h"

/* The option's value as it may be shown; the caller frees. */
static char *shown(const struct config *c, const struct config_option *option) {
    char buffer[CONFIG_NAME_SIZE];
    const char *value = config_value(c, option, buffer);
    char *text = strcmp(option->name, "postgres") == 0 ? config_mask_conninfo(value) : strdup(value);
    if (text == NULL)
        abort();
    return text;
}

static void print_row(const char *name, const char *value, const char *origin) {
    printf("%-22s %-11s %s\n", name, origin, *value ? value : "(not set)");
}

static void print_text(const struct config *c) {
    print_row("option", "value", "from");
    for (size_t i = 0; i < config_option_count; i++) {
        char *value = shown(c, &config_options[i]);
        print_row(config_options[i].name, value, c->origins[i]);
        free(value);
    }
    for (size_t i = 0; i < c->kafka_count; i++) {
        char name[256];
        snprintf(name, sizeof name, "kafka.%s", c->kafka[i].name);
        print_row(name, config_mask_property(c->kafka[i].name, c->kafka[i].value), c->kafka[i].origin);
    }
}

static json_t *json_value(const struct config_option *option, const char *value) {
    switch (option->type) {
    case CONFIG_INTEGER:
        return json_integer(strtoll(value, NULL, 10));
    case CONFIG_BOOLEAN:
        return json_boolean(strcmp(value, "true") == 0);
    case CONFIG_TEXT:
    case CONFIG_CHOICE:
        break;
    }
    return json_string(value);
}

static void print_json(const struct config *c) {
    json_t *root = json_object(), *kafka = json_object();
    for (size_t i = 0; i < config_option_count; i++) {
        char *value = shown(c, &config_options[i]);
        json_object_set_new(
            root, config_options[i].name,
            json_pack("{s:o*, s:s}", "value", json_value(&config_options[i], value), "origin", c->origins[i]));
        free(value);
    }
    for (size_t i = 0; i < c->kafka_count; i++) {
        const struct config_property *p = &c->kafka[i];
        json_object_set_new(
            kafka, p->name,
            json_pack("{s:s, s:s}", "value", config_mask_property(p->name, p->value), "origin", p->origin));
    }
    json_object_set_new(root, "kafka", kafka);
    json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
}

int cli_config(int argc, char **argv) {
    bool json = cli_take_flag(&argc, argv, "--json");
    struct config c;
    struct fault f = {0};
    if (!cli_configure(&c, argc, argv, 0, NULL, &f))
        return cli_fail(&f);
    if (json)
        print_json(&c);
    else
        print_text(&c);
    config_free(&c);
    return CLI_OK;
}
