/* cli_help.c: `denpyo help`: prints the tables of commands, options and exit codes. */
#include <stdio.h>
#include <string.h>

#include "denpyo/cli.h"
#include "denpyo/outcome_table.h"

/* Options that are worth a place in every command's help. */
static const char *const connections[] = {"config", "postgres", "brokers", "schema"};

static bool is_connection(const struct config_option *option) {
    for (size_t i = 0; i < sizeof connections / sizeof *connections; i++)
        if (strcmp(option->name, connections[i]) == 0)
            return true;
    return false;
}

static void print_option(FILE *out, const struct config_option *option, bool thorough) {
    char name[CONFIG_NAME_SIZE], flag[CONFIG_NAME_SIZE * 2];
    const char *value = option->type == CONFIG_TEXT      ? option->unit
                        : option->type == CONFIG_INTEGER ? "N"
                        : option->type == CONFIG_CHOICE  ? "WORD"
                                                         : "";
    snprintf(flag, sizeof flag, "%s%s%s", config_flag(option, name), *value ? " " : "", value);
    fprintf(out, "  %-26s %s", flag, option->help);
    if (thorough)
        fprintf(out, "\n  %-26s %s", "", config_variable(option, name));
    else
        fprintf(out, " (%s)", config_variable(option, name));
    if (thorough && option->type == CONFIG_INTEGER)
        fprintf(out, ", %lld to %lld %s", (long long)option->min, (long long)option->max, option->unit);
    if (thorough && option->choices)
        fprintf(out, ", one of %s", option->choices);
    if (thorough && *option->fallback)
        fprintf(out, ", default %s", option->fallback);
    fputc('\n', out);
}

static void print_options(FILE *out, bool all) {
    fputs(all ? "\nOptions (--no-NAME turns a switch off):\n" : "\nConnections:\n", out);
    for (size_t i = 0; i < config_option_count; i++)
        if (all || is_connection(&config_options[i]))
            print_option(out, &config_options[i], all);
    if (all)
        fprintf(out, "  %-26s %s\n  %-26s %s\n", "--kafka NAME=VALUE", "a librdkafka property, as often as needed", "",
                "DENPYO_KAFKA_NAME, dots as underscores");
    else
        fputs("  More options: \"denpyo help config\".\n", out);
}

static void print_command(FILE *out, const struct cli_command *command) {
    fprintf(out, "Usage: denpyo %s%s%s [OPTION…]\n\n%s\n", command->name, command->words ? " " : "",
            command->words ? command->words : "", command->summary);
    if (command->details)
        fprintf(out, "%s\n", command->details);
    if (command->flags[0].name)
        fputs("\nFlags:\n", out);
    for (size_t i = 0; i < CLI_FLAGS_MAX && command->flags[i].name; i++)
        fprintf(out, "  %-26s %s\n", command->flags[i].name, command->flags[i].help);
    print_options(out, command->all_options);
}

static void print_overview(FILE *out) {
    fputs("Usage: denpyo COMMAND [OPTION…]\n\ndenpyo sends the committed rows of an outbox in PostgreSQL to Kafka and "
          "keeps the "
          "receipts.\n\nCommands:\n",
          out);
    for (size_t i = 0; i < cli_command_count; i++) {
        const struct cli_command *command = &cli_commands[i];
        char words[64];
        snprintf(words, sizeof words, "%s%s%s", command->name, command->words ? " " : "",
                 command->words ? command->words : "");
        fprintf(out, "  %-26s %s\n", words, command->summary);
    }
    print_options(out, false);
    fputs("\nExit codes:\n", out);
    for (size_t i = 0; i < cli_exit_count; i++)
        fprintf(out, "  %d  %s\n", (int)cli_exits[i].code, cli_exits[i].meaning);
}

void cli_help_print(FILE *out, const struct cli_command *command) {
    if (command)
        print_command(out, command);
    else
        print_overview(out);
}

int cli_help(int argc, char **argv) {
    struct fault f = {0};
    const struct cli_command *command = NULL;
    if (argc > 0 && strcmp(argv[0], "outcomes") == 0) {
        outcome_table_print(stdout);
        return CLI_OK;
    }
    if (argc > 0 && (command = cli_find(argv[0], &f)) == NULL)
        return cli_fail(&f);
    cli_help_print(stdout, command);
    return CLI_OK;
}
