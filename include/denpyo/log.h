/* log.h: one event a line, constant text first, then key=value; text or JSON. */
#ifndef DENPYO_LOG_H
#define DENPYO_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* error = a human is needed; warn = degraded and healing itself; info = state changes; debug = every step. */
enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
enum log_format { LOG_TEXT, LOG_JSON };

/* A key=value pair: text (borrowed until log_write returns) or a number. */
struct log_field {
    const char *name; /* NULL ends a list */
    const char *text; /* NULL: the number counts */
    int64_t number;
};

static inline struct log_field log_str(const char *name, const char *text) {
    return (struct log_field){.name = name, .text = text != NULL ? text : ""};
}
static inline struct log_field log_int(const char *name, int64_t number) {
    return (struct log_field){.name = name, .number = number};
}

/* Called once at start; before that: text, info, standard error. Not thread-safe against log_write. */
void log_setup(enum log_format format, enum log_level level);

/* Parse "error|warn|info|debug" / "text|json"; false if the word is none of them. */
bool log_level_parse(const char *word, enum log_level *out);
bool log_format_parse(const char *word, enum log_format *out);

/*
 * Writes one line to standard error with a UTC time stamp. `text` is constant prose without data; `fields` ends with a
 * NULL name. Thread-safe (one write(2) a line). Never pass a payload or a password. Clears the progress line of a
 * terminal first.
 */
void log_write(enum log_level level, const char *text, const struct log_field *fields);

/* log_event(LOG_INFO, "batch claimed", log_int("batch", id), LOG_END) */
#define LOG_END ((struct log_field){.name = 0})
#define log_event(level, text, ...) log_write((level), (text), (const struct log_field[]){__VA_ARGS__})

/*
 * Shows `line` as the one progress line of a terminal (rewritten in place), or nothing when standard error
 * is no terminal. NULL removes it. log_write takes care not to garble it.
 */
void log_progress(const char *line);

#endif
