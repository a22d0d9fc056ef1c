/* config.h: the effective configuration: defaults, then file, then environment, then flags; later wins. */
#ifndef DENPYO_CONFIG_H
#define DENPYO_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "denpyo/fault.h"
#include "denpyo/log.h"

/* A librdkafka property, passed through as it is. Owned by the config. */
struct config_property {
    char *name;
    char *value;
    const char *origin; /* static: "default", "file", "environment", "flag" */
};

enum config_type {
    CONFIG_TEXT,    /* char *; min and max bound its bytes */
    CONFIG_INTEGER, /* int64_t from min to max */
    CONFIG_BOOLEAN, /* bool */
    CONFIG_CHOICE,  /* an enum: the index into `choices` */
};

/*
 * One row of the option table. The file knows the option as `name` (nested by its dots, or dotted), the environment as
 * DENPYO_ and the name in capitals, the command line as -- and the name, dots and underscores turned into _ and -.
 */
struct config_option {
    const char *name;
    enum config_type type;
    size_t offset; /* of the field in struct config */
    int64_t min, max;
    const char *fallback; /* the default, as text */
    const char *unit;     /* "rows", "bytes", "ms"; for text what stands for the value in help: "CONNINFO" */
    const char *choices;  /* CONFIG_CHOICE: words between bars, "text|json" */
    const char *help;
};
extern const struct config_option config_options[];
extern const size_t config_option_count;
#define CONFIG_OPTIONS_MAX 32

/* What a crash may do: copies with the same id, or (for read_committed consumers) nothing at all. */
enum config_delivery { CONFIG_AT_LEAST_ONCE, CONFIG_EXACTLY_ONCE };
/* Whether the later messages of a rejected one's key go on. */
enum config_on_reject { CONFIG_REJECT_CONTINUE, CONFIG_REJECT_HOLD };
/* What becomes of messages that may have arrived. */
enum config_on_unknown { CONFIG_UNKNOWN_LOOK_UP, CONFIG_UNKNOWN_RESEND, CONFIG_UNKNOWN_HOLD };

/*
 * Every option, typed. Strings are owned by the config and never NULL unless said. The option table in config.c is the
 * only place that names them; --help, `denpyo config`, the man page and the JSON Schema come from it or are compared
 * with it.
 */
struct config {
    char *file;                 /* config: the JSON file that was read ("" = none) */
    char *postgres;             /* postgres: libpq conninfo or URI ("" = libpq's own defaults and PG* variables) */
    char *brokers;              /* brokers: bootstrap list host:port,… ("" = not given) */
    char *schema;               /* schema: the outbox schema's name, unquoted */
    char *accept_cluster_id;    /* accept_cluster_id: the Kafka cluster to move to ("" = none) */
    char *relay;                /* relay: this relay's name, "default" */
    int64_t batch_rows;         /* batch.rows: most rows of a page */
    int64_t batch_bytes;        /* batch.bytes: a page's target size */
    int64_t batch_close_ms;     /* batch.close_ms: how long it waits for a partition that acknowledges nothing */
    int64_t inflight_messages;  /* inflight.messages: claimed and not settled, all topics together */
    int64_t inflight_bytes;     /* inflight.bytes: the same in payload bytes */
    int64_t poll_linger_ms;     /* poll.linger_ms: longest pause between polls while thousands of rows come a second */
    int64_t poll_busy_ms;       /* poll.busy_ms: wait between polls while there is work */
    int64_t poll_idle_ms;       /* poll.idle_ms: longest wait between polls when there is none */
    int64_t lease_ms;           /* lease_ms: leadership lease */
    int64_t retry_initial_ms;   /* retry.initial_ms: first backoff of a failed message */
    int64_t retry_max_ms;       /* retry.max_ms: longest backoff */
    int64_t retry_max_attempts; /* retry.max_attempts: then a message that fails by itself is rejected; 0 = never */
    enum config_on_reject on_reject;   /* on_reject */
    enum config_on_unknown on_unknown; /* on_unknown */
    int64_t shutdown_flush_ms;         /* shutdown.flush_ms: how long SIGTERM waits for acknowledgments */
    int64_t metadata_refresh_ms;       /* metadata.refresh_ms: how often partition counts are read again */
    int64_t sweep_interval_ms;         /* sweep.interval_ms: how often the sweep walks the outbox; 0 = never */
    enum config_delivery delivery;     /* delivery */
    char *transactional_id;            /* transactional_id: needed for exactly_once ("" = not given) */
    bool prepare;                      /* prepare: named prepared statements (off behind an old pooler) */
    enum log_level log_level;          /* log.level */
    enum log_format log_format;        /* log.format */
    bool progress;                     /* progress: the progress line on a terminal */
    char *role_writer;                 /* roles.writer */
    char *role_relay;                  /* roles.relay */
    char *role_reader;                 /* roles.reader */
    struct config_property *kafka;     /* kafka.*: librdkafka properties in the order given */
    size_t kafka_count;
    const char *origins[CONFIG_OPTIONS_MAX]; /* of each option, in the table's order; read by config_origin */
};

/*
 * Builds the configuration. argv holds what follows the subcommand; options may stand anywhere, `--` ends them. Words
 * that are no options are left in words[] (borrowed from argv, in order), their number in *words_count. Unknown or
 * ill-typed options give FAULT_USAGE naming the option, its origin (flag, variable, file:line:column) and the nearest
 * known one. The caller frees with config_free.
 */
bool config_load(struct config *out, int argc, char **argv, const char **words, int *words_count, struct fault *f)
    __attribute__((warn_unused_result));
void config_free(struct config *c);

#define CONFIG_NAME_SIZE 64
/* The option's name on the command line ("--batch-rows") and in the environment ("DENPYO_BATCH_ROWS"); returns `out`.
 */
const char *config_flag(const struct config_option *option, char out[CONFIG_NAME_SIZE]);
const char *config_variable(const struct config_option *option, char out[CONFIG_NAME_SIZE]);

/* The option's value as text: borrowed from the config, static, or written into `out`. Passwords are not masked. */
const char *config_value(const struct config *c, const struct config_option *option, char out[CONFIG_NAME_SIZE]);

/* Where an option's value came from: "default", "file", "environment", "flag". `option` as in the table ("batch.rows").
 */
const char *config_origin(const struct config *c, const char *option);

#endif
