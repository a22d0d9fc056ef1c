/* config.c: the option table, and how defaults, file, environment and flags fill it one after the other. */
#include "denpyo/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "denpyo/config_file.h"
#include "denpyo/nearest.h"

#define FIELD(f) offsetof(struct config, f)
#define TEXT(n, f, low, high, fallback, value, help)                                                                   \
    { n, CONFIG_TEXT, FIELD(f), low, high, fallback, value, NULL, help }
#define NUMBER(n, f, low, high, fallback, unit, help)                                                                  \
    { n, CONFIG_INTEGER, FIELD(f), low, high, fallback, unit, NULL, help }
#define SWITCH(n, f, fallback, help)                                                                                   \
    { n, CONFIG_BOOLEAN, FIELD(f), 0, 1, fallback, NULL, NULL, help }
#define CHOICE(n, f, fallback, words, help)                                                                            \
    { n, CONFIG_CHOICE, FIELD(f), 0, 0, fallback, NULL, words, help }
#define HOUR_MS 3600000
#define GIB (1LL << 30)

const struct config_option config_options[] = {
    TEXT("config", file, 0, 4096, "", "FILE", "JSON file to read options from"),
    TEXT("postgres", postgres, 0, 65536, "", "CONNINFO",
         "PostgreSQL: key=value words or a postgresql:// URI; PGHOST and the like fill the gaps"),
    TEXT("brokers", brokers, 0, 65536, "", "LIST", "Kafka brokers to start from: host:port,host:port"),
    TEXT("schema", schema, 1, 63, "outbox", "NAME", "schema that holds the outbox"),
    TEXT("relay", relay, 1, 200, "default", "NAME", "name of the relay; processes of one name elect one leader"),
    TEXT("accept_cluster_id", accept_cluster_id, 0, 79, "", "ID",
         "another Kafka cluster than the one on record is meant: its id"),
    NUMBER("batch.rows", batch_rows, 1, 30000, "10000", "rows", "most rows claimed in one step"),
    NUMBER("batch.bytes", batch_bytes, 1024, GIB, "8388608", "bytes", "payload that one step aims at"),
    NUMBER("batch.close_ms", batch_close_ms, 100, 3600000, "15000", "ms",
           "how long a batch waits for a partition that acknowledges nothing"),
    NUMBER("inflight.messages", inflight_messages, 1, 1000000, "20000", "messages",
           "most messages claimed and not yet acknowledged"),
    NUMBER("inflight.bytes", inflight_bytes, 1024, 16 * GIB, "67108864", "bytes",
           "most payload claimed and not yet acknowledged"),
    NUMBER("poll.busy_ms", poll_busy_ms, 0, 60000, "1", "ms",
           "wait between two looks at the outbox while there is work"),
    NUMBER("poll.linger_ms", poll_linger_ms, 0, 10000, "100", "ms",
           "longest pause for rows to gather, when thousands come a second"),
    NUMBER("poll.idle_ms", poll_idle_ms, 1, HOUR_MS, "100", "ms",
           "longest wait between two looks at the outbox when there is none"),
    NUMBER("lease_ms", lease_ms, 1000, HOUR_MS, "10000", "ms",
           "a standby takes over this long after the leader went silent"),
    NUMBER("retry.initial_ms", retry_initial_ms, 1, HOUR_MS, "500", "ms",
           "first wait before a failed message is tried again"),
    NUMBER("retry.max_ms", retry_max_ms, 1, 24LL * HOUR_MS, "60000", "ms",
           "longest wait before a failed message is tried again"),
    NUMBER("retry.max_attempts", retry_max_attempts, 0, 1000000, "0", "attempts",
           "a message that failed so often by itself is rejected; 0: never; outages and topic trouble do not count"),
    CHOICE("on_reject", on_reject, "continue", "continue|hold",
           "whether later messages of a rejected one's key go on, or wait until a person decides"),
    CHOICE("on_unknown", on_unknown, "look_up_then_resend", "look_up_then_resend|resend|hold",
           "what becomes of messages that may have arrived; hold: rejected unless found, a person decides"),
    NUMBER("shutdown.flush_ms", shutdown_flush_ms, 0, HOUR_MS, "10000", "ms",
           "how long SIGTERM waits for acknowledgments of what was sent"),
    NUMBER("metadata.refresh_ms", metadata_refresh_ms, 100, HOUR_MS, "10000", "ms",
           "how often topics and their partitions are looked up again"),
    NUMBER("sweep.interval_ms", sweep_interval_ms, 0, 720LL * HOUR_MS, "3600000", "ms",
           "how often every settled message is compared with its receipt; 0 is never"),
    CHOICE("delivery", delivery, "at_least_once", "at_least_once|exactly_once",
           "exactly_once: Kafka transactions; read_committed consumers see each message once"),
    TEXT("transactional_id", transactional_id, 0, 200, "", "NAME",
         "exactly_once: a name that no other outbox on this Kafka cluster uses"),
    SWITCH("prepare", prepare, "true", "use named prepared statements; off behind a pooler that refuses them"),
    CHOICE("log.level", log_level, "info", "error|warn|info|debug", "least important event that is logged"),
    CHOICE("log.format", log_format, "text", "text|json", "log lines for people or for machines"),
    SWITCH("progress", progress, "true", "show a progress line when standard error is a terminal"),
    TEXT("roles.writer", role_writer, 1, 63, "outbox_writer", "ROLE", "role of applications that insert messages"),
    TEXT("roles.relay", role_relay, 1, 63, "outbox_relay", "ROLE", "role of the relay"),
    TEXT("roles.reader", role_reader, 1, 63, "outbox_reader", "ROLE",
         "role of people and dashboards that read the views"),
};
const size_t config_option_count = sizeof config_options / sizeof *config_options;
_Static_assert(sizeof config_options / sizeof *config_options <= CONFIG_OPTIONS_MAX, "raise CONFIG_OPTIONS_MAX");
_Static_assert(sizeof(enum config_on_reject) == sizeof(unsigned) && sizeof(enum config_on_unknown) == sizeof(unsigned),
               "a choice is stored as an unsigned");
_Static_assert(sizeof(enum config_delivery) == sizeof(unsigned), "a choice is stored as an unsigned");
_Static_assert(sizeof(enum log_level) == sizeof(unsigned) && sizeof(enum log_format) == sizeof(unsigned),
               "a choice is stored as an unsigned");

/* Of each pair the first must not be above the second. */
static const char *const ordered[][2] = {
    {"poll.busy_ms", "poll.idle_ms"},
    {"retry.initial_ms", "retry.max_ms"},
    {"batch.rows", "inflight.messages"},
    {"batch.bytes", "inflight.bytes"},
};

/* Variables with our prefix that are not meant for us; of a family also those that go on after a "_". */
static const struct {
    const char *name;
    bool family;
} foreign_variables[] = {
    /* Kubernetes sets these for a service that is called denpyo. */
    {"DENPYO_SERVICE_HOST", false},
    {"DENPYO_SERVICE_PORT", true},
    {"DENPYO_PORT", true},
    /* The repository's scripts and tests read these. */
    {"DENPYO_BINARY", false},
    {"DENPYO_BUILD", false},
    {"DENPYO_CMAKE", false},
    {"DENPYO_KAFKA_LIBS", false},
    {"DENPYO_PYTHON", false},
    {"DENPYO_QUICKSTART_DIR", false},
    {"DENPYO_TEST_LARGE_MESSAGES", false},
    {"DENPYO_TEST_SMALL_MESSAGES", false},
    {"DENPYO_TEST_WORKERS", false},
};

static const char by_default[] = "default", by_file[] = "file", by_environment[] = "environment", by_flag[] = "flag";

#define VARIABLE_PREFIX "DENPYO_"
#define KAFKA_VARIABLE_PREFIX VARIABLE_PREFIX "KAFKA_"
#define KAFKA_NAME_PREFIX "kafka."

static char *copy_of(const char *text) {
    char *copy = strdup(text);
    if (copy == NULL)
        abort();
    return copy;
}

const char *config_flag(const struct config_option *option, char out[CONFIG_NAME_SIZE]) {
    snprintf(out, CONFIG_NAME_SIZE, "--%s", option->name);
    for (char *c = out; *c; c++)
        if (*c == '.' || *c == '_')
            *c = '-';
    return out;
}

const char *config_variable(const struct config_option *option, char out[CONFIG_NAME_SIZE]) {
    snprintf(out, CONFIG_NAME_SIZE, VARIABLE_PREFIX "%s", option->name);
    for (char *c = out; *c; c++)
        *c = *c == '.' ? '_' : (char)toupper((unsigned char)*c);
    return out;
}

static const char *config_name(const struct config_option *option, char out[CONFIG_NAME_SIZE]) {
    snprintf(out, CONFIG_NAME_SIZE, "%s", option->name);
    return out;
}

/* How one origin spells the options: config_name, config_variable or config_flag. */
typedef const char *spelling(const struct config_option *option, char out[CONFIG_NAME_SIZE]);

static const struct config_option *find_option(const char *word, spelling *spell) {
    char name[CONFIG_NAME_SIZE];
    for (size_t i = 0; i < config_option_count; i++)
        if (strcmp(spell(&config_options[i], name), word) == 0)
            return &config_options[i];
    return NULL;
}

static bool unknown_option(const char *word, spelling *spell, const char *origin, struct fault *f) {
    char names[CONFIG_OPTIONS_MAX][CONFIG_NAME_SIZE];
    const char *known[CONFIG_OPTIONS_MAX];
    for (size_t i = 0; i < config_option_count; i++)
        known[i] = spell(&config_options[i], names[i]);
    const char *nearest = nearest_word(word, known, config_option_count);
    const char *place = origin == by_environment ? " in the environment" : "";
    if (nearest)
        return fault_set(f, FAULT_USAGE, "UNKNOWN_OPTION", "unknown option %s%s; did you mean %s?", word, place,
                         nearest);
    return fault_set(f, FAULT_USAGE, "UNKNOWN_OPTION", "unknown option %s%s; \"denpyo config\" lists all options", word,
                     place);
}

static void *field_of(struct config *c, const struct config_option *option) {
    return (char *)c + option->offset;
}

static bool set_text(char **field, const struct config_option *option, const char *value, const char *label,
                     struct fault *f) {
    size_t size = strlen(value);
    if (size < (size_t)option->min)
        return fault_set(f, FAULT_USAGE, "OPTION_VALUE", "%s must not be empty", label);
    if (size > (size_t)option->max)
        return fault_set(f, FAULT_USAGE, "OPTION_VALUE", "%s is %zu bytes long; at most %lld are allowed", label, size,
                         (long long)option->max);
    free(*field);
    *field = copy_of(value);
    return true;
}

static bool set_integer(int64_t *field, const struct config_option *option, const char *value, const char *label,
                        struct fault *f) {
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (end == value || *end || isspace((unsigned char)*value))
        return fault_set(f, FAULT_USAGE, "OPTION_VALUE",
                         "%s must be a whole number of %s from %lld to %lld, not \"%s\"", label, option->unit,
                         (long long)option->min, (long long)option->max, value);
    if (errno == ERANGE || number < option->min || number > option->max)
        return fault_set(f, FAULT_USAGE, "OPTION_VALUE", "%s must be from %lld to %lld %s, not %s", label,
                         (long long)option->min, (long long)option->max, option->unit, value);
    *field = number;
    return true;
}

static bool set_boolean(bool *field, const char *value, const char *label, struct fault *f) {
    static const char *const words[] = {"false", "true", "off", "on", "no", "yes", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(value, words[i]) == 0) {
            *field = i % 2;
            return true;
        }
    return fault_set(f, FAULT_USAGE, "OPTION_VALUE", "%s must be true or false, not \"%s\"", label, value);
}

static bool set_choice(void *field, const struct config_option *option, const char *value, const char *label,
                       struct fault *f) {
    unsigned index = 0;
    for (const char *word = option->choices; *word; index++) {
        size_t size = strcspn(word, "|");
        if (strlen(value) == size && strncmp(value, word, size) == 0) {
            memcpy(field, &index, sizeof index);
            return true;
        }
        word += size + (word[size] == '|');
    }
    return fault_set(f, FAULT_USAGE, "OPTION_VALUE", "%s must be one of %s, not \"%s\"", label, option->choices, value);
}

/* `label` is what the user wrote ("--batch-rows"), for faults. */
static bool set_option(struct config *c, const struct config_option *option, const char *value, const char *origin,
                       const char *label, struct fault *f) {
    void *field = field_of(c, option);
    bool ok = false;
    switch (option->type) {
    case CONFIG_TEXT:
        ok = set_text(field, option, value, label, f);
        break;
    case CONFIG_INTEGER:
        ok = set_integer(field, option, value, label, f);
        break;
    case CONFIG_BOOLEAN:
        ok = set_boolean(field, value, label, f);
        break;
    case CONFIG_CHOICE:
        ok = set_choice(field, option, value, label, f);
        break;
    }
    if (ok)
        c->origins[option - config_options] = origin;
    return ok;
}

static bool set_property(struct config *c, const char *name, const char *value, const char *origin, struct fault *f) {
    if (*name == 0)
        return fault_set(f, FAULT_USAGE, "OPTION_VALUE",
                         "a librdkafka property needs a name, as in compression.type=lz4");
    if (strcmp(name, "bootstrap.servers") == 0 || strcmp(name, "metadata.broker.list") == 0)
        return fault_set(f, FAULT_USAGE, "OPTION_VALUE",
                         "give the brokers with --brokers, DENPYO_BROKERS or \"brokers\", not as the property %s",
                         name);
    struct config_property *property = NULL;
    for (size_t i = 0; i < c->kafka_count && property == NULL; i++)
        if (strcmp(c->kafka[i].name, name) == 0)
            property = &c->kafka[i];
    if (property == NULL) {
        c->kafka = realloc(c->kafka, (c->kafka_count + 1) * sizeof *c->kafka);
        if (c->kafka == NULL)
            abort();
        property = &c->kafka[c->kafka_count++];
        *property = (struct config_property){.name = copy_of(name)};
    }
    free(property->value);
    property->value = copy_of(value);
    property->origin = origin;
    return true;
}

static bool set_from_file(void *context, const struct config_leaf *leaf, struct fault *f) {
    struct config *c = context;
    size_t prefix = strlen(KAFKA_NAME_PREFIX);
    if (strncmp(leaf->name, KAFKA_NAME_PREFIX, prefix) == 0)
        return set_property(c, leaf->name + prefix, leaf->value, by_file, f);
    char label[300];
    snprintf(label, sizeof label, "\"%s\"", leaf->name);
    const struct config_option *option = find_option(leaf->name, config_name);
    if (option == NULL)
        return unknown_option(leaf->name, config_name, by_file, f);
    if (option->offset == FIELD(file))
        return fault_set(f, FAULT_USAGE, "UNKNOWN_OPTION", "a configuration file cannot name another one");
    static const struct {
        enum config_leaf_type leaf;
        const char *wanted;
    } types[] = {
        [CONFIG_TEXT] = {CONFIG_LEAF_TEXT, "text in double quotes"},
        [CONFIG_INTEGER] = {CONFIG_LEAF_NUMBER, "a number without quotes"},
        [CONFIG_BOOLEAN] = {CONFIG_LEAF_BOOLEAN, "true or false without quotes"},
        [CONFIG_CHOICE] = {CONFIG_LEAF_TEXT, "text in double quotes"},
    };
    if (leaf->type != types[option->type].leaf)
        return fault_set(f, FAULT_USAGE, "OPTION_VALUE", "%s must be %s", label, types[option->type].wanted);
    return set_option(c, option, leaf->value, by_file, label, f);
}

static bool is_foreign(const char *variable) {
    for (size_t i = 0; i < sizeof foreign_variables / sizeof *foreign_variables; i++) {
        size_t size = strlen(foreign_variables[i].name);
        if (strncmp(variable, foreign_variables[i].name, size) == 0 &&
            (variable[size] == 0 || (foreign_variables[i].family && variable[size] == '_')))
            return true;
    }
    return false;
}

/* DENPYO_KAFKA_COMPRESSION_TYPE is compression.type. */
static bool set_property_variable(struct config *c, const char *variable, const char *value, struct fault *f) {
    char *name = copy_of(variable + strlen(KAFKA_VARIABLE_PREFIX));
    for (char *at = name; *at; at++)
        *at = *at == '_' ? '.' : (char)tolower((unsigned char)*at);
    bool ok = set_property(c, name, value, by_environment, f);
    free(name);
    return ok;
}

static bool load_environment(struct config *c, struct fault *f) {
    for (char **entry = environ; entry && *entry; entry++) {
        const char *value = strchr(*entry, '=');
        if (value == NULL || strncmp(*entry, VARIABLE_PREFIX, strlen(VARIABLE_PREFIX)) != 0)
            continue;
        char *variable = strndup(*entry, (size_t)(value - *entry));
        if (variable == NULL)
            abort();
        const struct config_option *option = find_option(variable, config_variable);
        bool ok;
        if (option)
            ok = set_option(c, option, value + 1, by_environment, variable, f);
        else if (is_foreign(variable))
            ok = true;
        else if (strncmp(variable, KAFKA_VARIABLE_PREFIX, strlen(KAFKA_VARIABLE_PREFIX)) == 0)
            ok = set_property_variable(c, variable, value + 1, f);
        else
            ok = unknown_option(variable, config_variable, by_environment, f);
        free(variable);
        if (!ok)
            return false;
    }
    return true;
}

/* `--kafka name=value` */
static bool set_property_flag(struct config *c, const char *pair, struct fault *f) {
    const char *equals = strchr(pair, '=');
    if (equals == NULL) /* the word is not repeated: it may hold a password */
        return fault_set(f, FAULT_USAGE, "OPTION_VALUE", "--kafka takes name=value, as in compression.type=lz4");
    char *name = strndup(pair, (size_t)(equals - pair));
    if (name == NULL)
        abort();
    bool ok = set_property(c, name, equals + 1, by_flag, f);
    free(name);
    return ok;
}

/* The boolean option whose flag is -- and this word. */
static const struct config_option *find_switch(const char *word) {
    char flag[CONFIG_NAME_SIZE * 2];
    snprintf(flag, sizeof flag, "--%s", word);
    const struct config_option *option = find_option(flag, config_flag);
    return option && option->type == CONFIG_BOOLEAN ? option : NULL;
}

/* One --flag, --flag=value, --flag value or --no-flag at argv[*at]; *at moves to the last word that was used. */
static bool load_flag(struct config *c, int argc, char **argv, int *at, struct fault *f) {
    char flag[CONFIG_NAME_SIZE * 2];
    const char *word = argv[*at], *equals = strchr(word, '=');
    snprintf(flag, sizeof flag, "%.*s", (int)(equals ? equals - word : (ptrdiff_t)strlen(word)), word);
    bool property = strcmp(flag, "--kafka") == 0;
    const struct config_option *option = find_option(flag, config_flag);
    const char *value = equals ? equals + 1 : NULL;
    if (option == NULL && value == NULL && strncmp(flag, "--no-", 5) == 0) {
        option = find_switch(flag + 5);
        value = "false";
    }
    if (option == NULL && !property)
        return unknown_option(flag, config_flag, by_flag, f);
    if (value == NULL && option && option->type == CONFIG_BOOLEAN)
        value = "true";
    if (value == NULL && *at + 1 < argc && strncmp(argv[*at + 1], "--", 2) != 0)
        value = argv[++*at];
    if (value == NULL)
        return fault_set(f, FAULT_USAGE, "OPTION_VALUE", "%s needs a value: %s %s", flag, flag,
                         property       ? "NAME=VALUE"
                         : option->unit ? option->unit
                                        : option->choices);
    return property ? set_property_flag(c, value, f) : set_option(c, option, value, by_flag, flag, f);
}

static bool load_flags(struct config *c, int argc, char **argv, const char **words, int *words_count, struct fault *f) {
    bool options = true;
    *words_count = 0;
    for (int at = 0; at < argc; at++) {
        if (options && strcmp(argv[at], "--") == 0)
            options = false;
        else if (!options || argv[at][0] != '-' || argv[at][1] == 0)
            words[(*words_count)++] = argv[at];
        else if (!load_flag(c, argc, argv, &at, f))
            return false;
    }
    return true;
}

static bool check_ordered(const struct config *c, struct fault *f) {
    for (size_t i = 0; i < sizeof ordered / sizeof *ordered; i++) {
        const struct config_option *low = find_option(ordered[i][0], config_name);
        const struct config_option *high = find_option(ordered[i][1], config_name);
        char low_text[CONFIG_NAME_SIZE], high_text[CONFIG_NAME_SIZE];
        if (strtoll(config_value(c, low, low_text), NULL, 10) > strtoll(config_value(c, high, high_text), NULL, 10))
            return fault_set(f, FAULT_USAGE, "OPTION_VALUE", "%s (%s, from %s) must not be above %s (%s, from %s)",
                             low->name, low_text, config_origin(c, low->name), high->name, high_text,
                             config_origin(c, high->name));
    }
    return true;
}

static void set_defaults(struct config *c) {
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < config_option_count; i++)
        if (!set_option(c, &config_options[i], config_options[i].fallback, by_default, config_options[i].name, NULL))
            abort(); /* the table's default breaks the table's own rule */
}

/* What the environment and the flags say; flags go over the environment. */
static bool load_outside(struct config *c, int argc, char **argv, const char **words, int *words_count,
                         struct fault *f) {
    return load_environment(c, f) && load_flags(c, argc, argv, words, words_count, f);
}

bool config_load(struct config *out, int argc, char **argv, const char **words, int *words_count, struct fault *f) {
    /* The file goes below environment and flags, but only they know its name: they are read twice. */
    struct config outside;
    set_defaults(&outside);
    set_defaults(out);
    bool ok = load_outside(&outside, argc, argv, words, words_count, f) &&
              (*outside.file == 0 || config_file_read(outside.file, set_from_file, out, f)) &&
              load_outside(out, argc, argv, words, words_count, f) && check_ordered(out, f);
    config_free(&outside);
    if (!ok)
        config_free(out);
    return ok;
}

void config_free(struct config *c) {
    for (size_t i = 0; i < config_option_count; i++)
        if (config_options[i].type == CONFIG_TEXT) {
            char **field = field_of(c, &config_options[i]);
            free(*field);
            *field = NULL;
        }
    for (size_t i = 0; i < c->kafka_count; i++) {
        free(c->kafka[i].name);
        free(c->kafka[i].value);
    }
    free(c->kafka);
    c->kafka = NULL;
    c->kafka_count = 0;
}

const char *config_value(const struct config *c, const struct config_option *option, char out[CONFIG_NAME_SIZE]) {
    const char *field = (const char *)c + option->offset;
    int64_t number;
    unsigned index;
    switch (option->type) {
    case CONFIG_TEXT:
        return *(char *const *)(const void *)field;
    case CONFIG_INTEGER:
        memcpy(&number, field, sizeof number);
        snprintf(out, CONFIG_NAME_SIZE, "%lld", (long long)number);
        break;
    case CONFIG_BOOLEAN:
        return *(const bool *)(const void *)field ? "true" : "false";
    case CONFIG_CHOICE:
        memcpy(&index, field, sizeof index);
        const char *word = option->choices;
        for (; index > 0; index--)
            word += strcspn(word, "|") + 1;
        snprintf(out, CONFIG_NAME_SIZE, "%.*s", (int)strcspn(word, "|"), word);
        break;
    }
    return out;
}

const char *config_origin(const struct config *c, const char *option) {
    const struct config_option *found = find_option(option, config_name);
    return found ? c->origins[found - config_options] : NULL;
}
