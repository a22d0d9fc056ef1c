/* cli.h: the subcommands, their exit codes, and what all of them share. */
#ifndef DENPYO_CLI_H
#define DENPYO_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "denpyo/config.h"
#include "denpyo/fault.h"

/* What the process tells its caller; the texts are in cli_exits. */
enum cli_exit {
    CLI_OK = 0,
    CLI_TROUBLE = 1,
    CLI_USAGE = 2,
    CLI_DATABASE = 3,
    CLI_BROKER = 4,
    CLI_SCHEMA = 5,
    CLI_PRIVILEGE = 6,
};

struct cli_exit_row {
    enum cli_exit code;
    const char *meaning;
};
extern const struct cli_exit_row cli_exits[];
extern const size_t cli_exit_count;

/* A flag that only one subcommand knows; all take the options of config.h. */
struct cli_flag {
    const char *name; /* "--json" */
    const char *help;
};

#define CLI_FLAGS_MAX 3
struct cli_command {
    const char *name;
    int (*run)(int argc, char **argv); /* argv: what follows the subcommand; returns an enum cli_exit */
    const char *words;                 /* what it takes besides options ("MESSAGE_ID"), or NULL */
    const char *summary;               /* one line */
    const char *details;               /* a few sentences for `help COMMAND` */
    struct cli_flag flags[CLI_FLAGS_MAX];
    bool all_options; /* its help lists every option, not only the connections */
};
extern const struct cli_command cli_commands[];
extern const size_t cli_command_count;

/* Runs the subcommand that argv[1] names. Returns the exit code. */
int cli_main(int argc, char **argv);

/* Removes `flag` ("--json") from argv when it stands there (before any `--`); true if it did. */
bool cli_take_flag(int *argc, char **argv, const char *flag);

/* The exit code that fits a fault. */
int cli_exit_code(const struct fault *f);

/* Prints the fault as one line on standard error ("denpyo: …") and returns the exit code that fits it. */
int cli_fail(const struct fault *f);

/*
 * config_load for a subcommand that takes at most `words_wanted` words: fills words[], missing ones with NULL. More
 * words are FAULT_USAGE. After success the caller frees *c.
 */
bool cli_configure(struct config *c, int argc, char **argv, int words_wanted, const char **words, struct fault *f)
    __attribute__((warn_unused_result));

/* The subcommand of this name, or NULL with FAULT_USAGE naming the nearest one. */
const struct cli_command *cli_find(const char *name, struct fault *f);

/* The help of one command, or of denpyo when it is NULL. */
void cli_help_print(FILE *out, const struct cli_command *command);

/* One function per subcommand. */
int cli_init(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_status(int argc, char **argv);
int cli_show(int argc, char **argv);
int cli_check(int argc, char **argv);
int cli_config(int argc, char **argv);
int cli_decide_retry(int argc, char **argv);
int cli_decide_skip(int argc, char **argv);
int cli_version(int argc, char **argv);
int cli_help(int argc, char **argv);

#endif
