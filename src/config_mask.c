/* config_mask.c: finds the passwords in a conninfo and among librdkafka's properties. */
#include "denpyo/config_mask.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* libpq's parameters that hold a secret (those it marks with '*' in PQconndefaults). */
static const char *const secret_parameters[] = {"password", "sslpassword"};

/* A librdkafka property is a secret when its name contains one of these words. */
static const char *const secret_words[] = {"password", "secret", "ssl.key.pem", "sasl.oauthbearer.config"};

/* The character at `at` of a URI, where %70 is p; *at moves past it, up to `end`. */
static int decoded(const char **at, const char *end) {
    const char *c = (*at)++;
    if (*c != '%' || end - c < 3 || !isxdigit((unsigned char)c[1]) || !isxdigit((unsigned char)c[2]))
        return (unsigned char)*c;
    char digits[3] = {c[1], c[2], 0};
    *at = c + 3;
    return (int)strtol(digits, NULL, 16);
}

static bool is_named(const char *name, size_t size, const char *secret, bool is_uri) {
    const char *at = name, *end = name + size;
    for (; *secret && at < end; secret++)
        if (tolower(is_uri ? decoded(&at, end) : (unsigned char)*at++) != *secret)
            return false;
    return *secret == 0 && at == end;
}

static bool is_secret_parameter(const char *name, size_t size, bool is_uri) {
    for (size_t i = 0; i < sizeof secret_parameters / sizeof *secret_parameters; i++)
        if (is_named(name, size, secret_parameters[i], is_uri))
            return true;
    return false;
}

/* Past one value of a key=value conninfo: quoted, or up to white space; a backslash takes the next character along. */
static const char *skip_value(const char *at) {
    bool quoted = *at == '\'';
    if (quoted)
        at++;
    while (*at && (quoted ? *at != '\'' : !isspace((unsigned char)*at)))
        at += at[0] == '\\' && at[1] ? 2 : 1;
    return quoted && *at ? at + 1 : at;
}

static const char *skip_space(const char *at) {
    while (isspace((unsigned char)*at))
        at++;
    return at;
}

/* A word without "=" behind a password may be its rest: one with a space in it that nobody quoted. */
static void mask_words(FILE *out, const char *at) {
    bool had_secret = false;
    while (*at) {
        const char *name = at = skip_space(at);
        while (*at && *at != '=' && !isspace((unsigned char)*at))
            at++;
        const char *name_end = at;
        bool secret = is_secret_parameter(name, (size_t)(name_end - name), false);
        at = skip_space(at);
        bool stray = *at != '=';
        if (stray) {
            at = name_end;
            if (had_secret && at > name)
                fputs(CONFIG_MASK, out);
            else
                fwrite(name, 1, (size_t)(at - name), out);
        } else {
            const char *value = at = skip_space(at + 1);
            fwrite(name, 1, (size_t)(value - name), out);
            at = skip_value(at);
            if (secret) /* the mask has no quote at its end, behind which the next name might stand */
                fprintf(out, "%s%s", CONFIG_MASK, *at && !isspace((unsigned char)*at) ? " " : "");
            else
                fwrite(value, 1, (size_t)(at - value), out);
        }
        had_secret = had_secret || secret;
        const char *next = skip_space(at);
        fwrite(at, 1, (size_t)(next - at), out);
        at = next;
    }
}

static void mask_query(FILE *out, const char *at) {
    while (*at) {
        fputc(*at++, out); /* ? or & */
        size_t name = strcspn(at, "=&"), size = strcspn(at, "&");
        if (at[name] == '=' && is_secret_parameter(at, name, true))
            fprintf(out, "%.*s=%s", (int)name, at, CONFIG_MASK);
        else
            fwrite(at, 1, size, out);
        at += size;
    }
}

/* Whether the text is name=value, joined by "&": it is a query then, and not the rest of a password with a "?" in it.
 */
static bool is_query(const char *at) {
    for (;; at++) {
        size_t name = strcspn(at, "=&");
        if (at[name] != '=' || strcspn(at, "?/@:") < name)
            return false;
        at += strcspn(at, "&");
        if (at[0] == 0 || at[1] == 0) /* libpq lets an "&" at the end pass */
            return true;
    }
}

/*
 * scheme://user:password@…?parameters. To libpq the first @ before any / ends the user and password, which may hold a ?
 * themselves. The last @ before the query counts here: a password with an @ in it is wrong, but stays a secret.
 */
static void mask_uri(FILE *out, const char *uri) {
    const char *start = strstr(uri, "://") + 3;
    const char *query = start + strcspn(start, "@/");
    if (*query != '@')
        query = start;
    for (query = strchr(query, '?'); query && query[1] && !is_query(query + 1);)
        query = strchr(query + 1, '?');
    if (query == NULL)
        query = start + strlen(start);
    const char *user_end = NULL;
    for (const char *at = start; at < query; at++)
        if (*at == '@')
            user_end = at;
    const char *colon = user_end ? memchr(start, ':', (size_t)(user_end - start)) : NULL;
    if (colon)
        fprintf(out, "%.*s:%s%.*s", (int)(colon - uri), uri, CONFIG_MASK, (int)(query - user_end), user_end);
    else
        fwrite(uri, 1, (size_t)(query - uri), out);
    mask_query(out, query);
}

char *config_mask_conninfo(const char *conninfo) {
    char *masked;
    size_t size;
    FILE *out = open_memstream(&masked, &size);
    if (out == NULL)
        abort();
    if (strncmp(conninfo, "postgresql://", 13) == 0 || strncmp(conninfo, "postgres://", 11) == 0)
        mask_uri(out, conninfo);
    else
        mask_words(out, conninfo);
    if (fclose(out) != 0)
        abort();
    return masked;
}

const char *config_mask_property(const char *name, const char *value) {
    for (size_t i = 0; i < sizeof secret_words / sizeof *secret_words; i++)
        if (strstr(name, secret_words[i]))
            return CONFIG_MASK;
    return value;
}
