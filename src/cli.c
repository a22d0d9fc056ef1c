/* cli.c: the table of subcommands, the table of exit codes, and the way from a command line to one of each. */
#include "denpyo/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "denpyo/nearest.h"
#include "denpyo/utf8.h"

#define JSON_FLAG                                                                                                      \
    { "--json", "print JSON instead of text" }

const struct cli_command cli_commands[] = {
    {.name = "init",
     .run = cli_init,
     .summary = "Make the outbox schema and its roles, or bring them up to date.",
     .details =
         "Safe to repeat, and to run from several places at once. Roles that may not be made by this user are left\n"
         "out, and the SQL for somebody who may is printed. --print | psql does all of it by hand.",
     .flags = {{"--print", "print the SQL for psql instead of running it"}}},
    {.name = "run",
     .run = cli_run,
     .summary = "Run the relay: committed rows go to Kafka, each with a receipt.",
     .details =
         "Stays in the foreground and logs to standard error. A second relay of the same name waits as standby.\n"
         "SIGTERM or SIGINT: claims nothing new, waits for acknowledgments (shutdown.flush_ms), records them, exits\n"
         "with 0; a second signal exits at once with 128 + its number.",
     .all_options = true},
    {.name = "status",
     .run = cli_status,
     .summary = "Show what waits, who leads, and what is in trouble.",
     .details = "Exits with 0 whenever it could look, whatever it saw; \"denpyo check\" judges.",
     .flags = {JSON_FLAG, {"--watch", "show it again every two seconds until interrupted"}}},
    {.name = "show",
     .run = cli_show,
     .words = "MESSAGE_ID",
     .summary = "Answer \"did it go out?\" for one message.",
     .details =
         "MESSAGE_ID is the message's UUID or its number (column id). Exits with 0 when the message went out or is on\n"
         "its way, with 1 when it is held, failed, rejected, skipped, or not there.",
     .flags = {JSON_FLAG}},
    {.name = "retry",
     .run = cli_decide_retry,
     .words = "MESSAGE_ID",
     .summary = "Try a rejected or failed message again, now.",
     .details = "MESSAGE_ID is as for show. A running relay notices within about a second; attempts are counted anew.\n"
                "Exits with 1 when the message is in another state, or is being tried at this moment."},
    {.name = "skip",
     .run = cli_decide_skip,
     .words = "MESSAGE_ID",
     .summary = "Close a rejected, failed or delayed message for good: it is not sent.",
     .details =
         "MESSAGE_ID is as for show. The reason stays on record, and what waited for the message goes on within\n"
         "about a second. Exits with 1 when the message is in another state, or is being tried at this moment.",
     .flags = {{"--reason", "why, in words: --reason TEXT; it must be given"}}},
    {.name = "check",
     .run = cli_check,
     .summary = "Check that a relay would work here, and say what to do if not.",
     .details =
         "One line for each check: OK, WARN, FAIL, or SKIP when another one has to pass first. Connect as the relay's\n"
         "user. The first FAIL decides the exit code; a WARN does not.",
     .flags = {JSON_FLAG, {"--sweep", "compare every settled message with its receipt; what has none is sent"}}},
    {.name = "config",
     .run = cli_config,
     .summary = "Print the effective configuration and where each value came from.",
     .details =
         "Later wins: defaults, the JSON file, the environment, flags. Passwords are masked. Any librdkafka property\n"
         "can be given: --kafka compression.type=zstd, DENPYO_KAFKA_COMPRESSION_TYPE=zstd, or in the file\n"
         "{\"kafka\": {\"compression.type\": \"zstd\"}}.",
     .flags = {JSON_FLAG},
     .all_options = true},
    {.name = "version",
     .run = cli_version,
     .summary = "Print the version of denpyo and of the libraries it runs with."},
    {.name = "help",
     .run = cli_help,
     .words = "[COMMAND]",
     .summary = "Explain denpyo, or one command.",
     .details = "\"denpyo help outcomes\" prints what each answer of Kafka makes of a message."},
};
const size_t cli_command_count = sizeof cli_commands / sizeof *cli_commands;

const struct cli_exit_row cli_exits[] = {
    {CLI_OK, "all is well"},
    {CLI_TROUBLE, "trouble found: what was asked for is not well; the output says what"},
    {CLI_USAGE, "wrong usage: command line, environment or configuration file"},
    {CLI_DATABASE, "PostgreSQL cannot be reached or refuses the connection"},
    {CLI_BROKER, "Kafka cannot be reached or refuses the connection"},
    {CLI_SCHEMA, "the outbox schema is missing, foreign or of another version"},
    {CLI_PRIVILEGE, "the role lacks a privilege, or row-level security hides rows from it"},
};
const size_t cli_exit_count = sizeof cli_exits / sizeof *cli_exits;

/* Which exit code a fault's code (a SQLSTATE or a word) stands for; the first row whose prefix fits. */
static const struct {
    const char *prefix;
    enum cli_exit code;
} exits_by_code[] = {
    {"42501", CLI_PRIVILEGE},                        /* insufficient_privilege */
    {"42P01", CLI_SCHEMA},                           /* undefined_table */
    {"3F000", CLI_SCHEMA},                           /* invalid_schema_name */
    {"42703", CLI_SCHEMA},                           /* undefined_column */
    {"42883", CLI_SCHEMA},                           /* undefined_function */
    {"SCHEMA", CLI_SCHEMA},    {"08", CLI_DATABASE}, /* connection_exception */
    {"28", CLI_DATABASE},                            /* invalid_authorization_specification */
    {"3D000", CLI_DATABASE},                         /* invalid_catalog_name */
    {"53", CLI_DATABASE},                            /* insufficient_resources */
    {"57", CLI_DATABASE},                            /* operator_intervention */
    {"CONNECT", CLI_DATABASE}, {"BROKER", CLI_BROKER},
};

int cli_exit_code(const struct fault *f) {
    if (f->class == FAULT_USAGE)
        return CLI_USAGE;
    for (size_t i = 0; i < sizeof exits_by_code / sizeof *exits_by_code; i++)
        if (strncmp(f->code, exits_by_code[i].prefix, strlen(exits_by_code[i].prefix)) == 0)
            return exits_by_code[i].code;
    return CLI_TROUBLE;
}

int cli_fail(const struct fault *f) {
    char line[sizeof f->text];
    /* Part of the text came from outside: no control character reaches the terminal, and it stays one line. */
    utf8_clean(line, sizeof line, f->text);
    for (size_t size = strlen(line); size > 0 && line[size - 1] == ' '; size--)
        line[size - 1] = 0;
    fprintf(stderr, "denpyo: %s\n", line);
    return cli_exit_code(f);
}

bool cli_take_flag(int *argc, char **argv, const char *flag) {
    bool found = false;
    int kept = 0;
    bool options = true;
    for (int i = 0; i < *argc; i++) {
        options = options && strcmp(argv[i], "--") != 0;
        if (options && strcmp(argv[i], flag) == 0)
            found = true;
        else
            argv[kept++] = argv[i];
    }
    *argc = kept;
    return found;
}

bool cli_configure(struct config *c, int argc, char **argv, int words_wanted, const char **words, struct fault *f) {
    const char *found[argc + 1];
    int count;
    if (!config_load(c, argc, argv, found, &count, f))
        return false;
    if (count > words_wanted) {
        config_free(c);
        return fault_set(f, FAULT_USAGE, "UNKNOWN_WORD",
                         "what is \"%s\"? \"denpyo help\" shows what each command takes", found[words_wanted]);
    }
    for (int i = 0; i < words_wanted; i++)
        words[i] = i < count ? found[i] : NULL;
    return true;
}

const struct cli_command *cli_find(const char *name, struct fault *f) {
    const char *names[16];
    for (size_t i = 0; i < cli_command_count; i++) {
        if (strcmp(cli_commands[i].name, name) == 0)
            return &cli_commands[i];
        names[i] = cli_commands[i].name;
    }
    const char *nearest = nearest_word(name, names, cli_command_count);
    if (nearest)
        fault_set(f, FAULT_USAGE, "UNKNOWN_COMMAND", "unknown command \"%s\"; did you mean \"%s\"?", name, nearest);
    else
        fault_set(f, FAULT_USAGE, "UNKNOWN_COMMAND", "unknown command \"%s\"; \"denpyo help\" lists them%s", name,
                  *name == '-' ? " (options come after the command)" : "");
    return NULL;
}
_Static_assert(sizeof cli_commands / sizeof *cli_commands <= 16, "cli_find has room for 16 names");

/* A full disk must not look like success. */
static int flushed(int code) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    struct fault f;
    fault_set(&f, FAULT_FATAL, "OUTPUT", "cannot write the output%s%s", errno ? ": " : "",
              errno ? strerror(errno) : "");
    return cli_fail(&f);
}

int cli_main(int argc, char **argv) {
    if (argc < 2) {
        cli_help_print(stderr, NULL);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    else if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    struct fault f = {0};
    const struct cli_command *command = cli_find(name, &f);
    if (command == NULL)
        return cli_fail(&f);
    argc -= 2;
    argv += 2;
    bool help = cli_take_flag(&argc, argv, "--help");
    int code = CLI_OK;
    if (cli_take_flag(&argc, argv, "-h") || help)
        cli_help_print(stdout, command);
    else
        code = command->run(argc, argv);
    return flushed(code);
}
