/* log.c: turns one event into one line of text or JSON on standard error, and keeps the progress line out of its way.
 */
#include "denpyo/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "denpyo/utf8.h"

static const char *const level_names[] = {
    [LOG_ERROR] = "error", [LOG_WARN] = "warn", [LOG_INFO] = "info", [LOG_DEBUG] = "debug"};
static const char *const format_names[] = {[LOG_TEXT] = "text", [LOG_JSON] = "json"};

static enum log_format chosen_format = LOG_TEXT;
static enum log_level chosen_level = LOG_INFO;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *progress; /* the line shown now, or NULL; guarded by lock */

#define ERASE_LINE "\r\033[K"

void log_setup(enum log_format format, enum log_level level) {
    chosen_format = format;
    chosen_level = level;
}

static int index_of(const char *word, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(word, names[i]) == 0)
            return (int)i;
    return -1;
}

bool log_level_parse(const char *word, enum log_level *out) {
    int i = index_of(word, level_names, sizeof level_names / sizeof *level_names);
    if (i >= 0)
        *out = (enum log_level)i;
    return i >= 0;
}

bool log_format_parse(const char *word, enum log_format *out) {
    int i = index_of(word, format_names, sizeof format_names / sizeof *format_names);
    if (i >= 0)
        *out = (enum log_format)i;
    return i >= 0;
}

/* The text between quotes; what is not printable UTF-8 becomes an escape of the format (JSON knows no bytes, only
 * U+FFFD). */
static void put_quoted(FILE *out, const char *text, enum log_format format) {
    fputc('"', out);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        size_t size = utf8_size(s);
        if (*s == '"' || *s == '\\')
            fprintf(out, "\\%c", *s);
        else if (*s == '\n')
            fputs("\\n", out);
        else if (*s == '\t')
            fputs("\\t", out);
        else if (size > 0 && utf8_is_control(s))
            fprintf(out, format == LOG_JSON ? "\\u%04x" : "\\x%02x",
                    s[size - 1]); /* the second byte of two is its code */
        else if (size == 0)
            fprintf(out, format == LOG_JSON ? "\\ufffd" : "\\x%02x", *s);
        else
            fwrite(s, 1, size, out);
        s += size ? size : 1;
    }
    fputc('"', out);
}

static bool needs_quotes(const char *text) {
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        size_t size = utf8_size(s);
        if (size == 0 || *s == ' ' || utf8_is_control(s) || *s == '"' || *s == '\\' || *s == '=')
            return true;
        s += size;
    }
    return *text == 0;
}

static void put_fields(FILE *out, const struct log_field *fields) {
    for (const struct log_field *f = fields; f->name; f++) {
        if (chosen_format == LOG_JSON)
            fprintf(out, ",\"%s\":", f->name);
        else
            fprintf(out, " %s=", f->name);
        if (f->text == NULL)
            fprintf(out, "%lld", (long long)f->number);
        else if (chosen_format == LOG_JSON || needs_quotes(f->text))
            put_quoted(out, f->text, chosen_format);
        else
            fputs(f->text, out);
    }
}

static void put_event(FILE *out, enum log_level level, const char *text, const struct log_field *fields) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm utc;
    gmtime_r(&now.tv_sec, &utc);
    char time[32];
    strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", &utc);
    int ms = (int)(now.tv_nsec / 1000000);
    if (chosen_format == LOG_JSON) {
        fprintf(out, "{\"time\":\"%s.%03dZ\",\"level\":\"%s\",\"text\":", time, ms, level_names[level]);
        put_quoted(out, text, LOG_JSON);
        put_fields(out, fields);
        fputs("}\n", out);
    } else {
        fprintf(out, "%s.%03dZ %s %s", time, ms, level_names[level], text);
        put_fields(out, fields);
        fputc('\n', out);
    }
}

/* A closed or full standard error must not stop the relay: what cannot be written is lost. */
static void write_all(const char *bytes, size_t size) {
    while (size > 0) {
        ssize_t n = write(STDERR_FILENO, bytes, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        bytes += n;
        size -= (size_t)n;
    }
}

static FILE *open_line(char **line, size_t *size) {
    FILE *out = open_memstream(line, size);
    if (out == NULL)
        abort();
    return out;
}

static void close_line(FILE *out, char **line, const size_t *size) {
    if (fclose(out) != 0)
        abort();
    write_all(*line, *size);
    free(*line);
}

void log_write(enum log_level level, const char *text, const struct log_field *fields) {
    if (level > chosen_level)
        return;
    char *line;
    size_t size;
    FILE *out = open_line(&line, &size);
    pthread_mutex_lock(&lock);
    if (progress)
        fputs(ERASE_LINE, out);
    put_event(out, level, text, fields);
    if (progress)
        fputs(progress, out);
    close_line(out, &line, &size);
    pthread_mutex_unlock(&lock);
}

/* Writes as many characters of `text` as fit into one row of the terminal: a wrapped line cannot be rewritten in place.
 */
static void put_row(FILE *out, const char *text) {
    struct winsize window = {0};
    size_t columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1 ? window.ws_col - 1U : 79;
    const unsigned char *s = (const unsigned char *)text;
    for (size_t column = 0; *s && column < columns; column++) {
        size_t size = utf8_size(s);
        if (size == 0 || utf8_is_control(s))
            fputc('?', out);
        else
            fwrite(s, 1, size, out);
        s += size ? size : 1;
    }
}

void log_progress(const char *line) {
    if (!isatty(STDERR_FILENO))
        return;
    pthread_mutex_lock(&lock);
    if (line || progress) {
        char *row;
        size_t size;
        FILE *out = open_line(&row, &size);
        if (line)
            put_row(out, line);
        fclose(out);
        free(progress);
        progress = line ? row : NULL;
        write_all(ERASE_LINE, strlen(ERASE_LINE));
        write_all(row, size);
        if (line == NULL)
            free(row);
    }
    pthread_mutex_unlock(&lock);
}
