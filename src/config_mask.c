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

static bool is_secret_parameter(const char *name, size_t size) {
    for (size_t i = 0; i < sizeof secret_parameters / sizeof *secret_parameters; i++)
        if (strlen(secret_parameters[i]) == size && strncasecmp(name, secret_parameters[i], size) == 0)
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

static void mask_words(FILE *out, const char *at) {
    while (*at) {
        const char *name = at = skip_space(at);
        while (*at && *at != '=' && !isspace((unsigned char)*at))
            at++;
        bool secret = is_secret_parameter(name, (size_t)(at - name));
        at = skip_space(at);
        secret = secret && *at == '=';
        if (*at == '=')
            at = skip_space(at + 1);
        fwrite(name, 1, (size_t)(at - name), out);
        const char *value = at;
        at = skip_value(at);
        if (secret)
            fputs(CONFIG_MASK, out);
        else
            fwrite(value, 1, (size_t)(at - value), out);
        const char *next = skip_space(at);
        fwrite(at, 1, (size_t)(next - at), out);
        at = next;
    }
}

static void mask_query(FILE *out, const char *at) {
    while (*at) {
        fputc(*at++, out); /* ? or & */
        size_t name = strcspn(at, "=&"), size = strcspn(at, "&");
        if (at[name] == '=' && is_secret_parameter(at, name))
            fprintf(out, "%.*s=%s", (int)name, at, CONFIG_MASK);
        else
            fwrite(at, 1, size, out);
        at += size;
    }
}

/* scheme://user:password@…?parameters. The last @ counts: a password with an @ in it is wrong, but stays a secret. */
static void mask_uri(FILE *out, const char *uri) {
    const char *start = strstr(uri, "://") + 3;
    const char *query = start + strcspn(start, "?");
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
