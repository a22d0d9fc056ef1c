/* sql.c: finds embedded SQL texts and puts the quoted names in. */
#include "denpyo/sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A growing text; out of memory aborts (the crash path is the tested path). */
struct text {
    char *data;
    size_t size, capacity;
};

static void append(struct text *t, const char *bytes, size_t size) {
    if (t->size + size + 1 > t->capacity) {
        t->capacity = (t->size + size + 1) * 2;
        t->data = realloc(t->data, t->capacity);
        if (t->data == NULL)
            abort();
    }
    memcpy(t->data + t->size, bytes, size);
    t->size += size;
    t->data[t->size] = 0;
}

static void append_quoted(struct text *t, const char *name, char quote) {
    append(t, &quote, 1);
    for (const char *c = name; *c; c++) {
        append(t, c, 1);
        if (*c == quote)
            append(t, c, 1);
    }
    append(t, &quote, 1);
}

const struct sql_file *sql_find(const char *path) {
    for (size_t i = 0; i < sql_file_count; i++)
        if (strcmp(sql_files[i].path, path) == 0)
            return &sql_files[i];
    return NULL;
}

char *sql_text(const char *path, const struct sql_names *names) {
    const struct sql_file *file = sql_find(path);
    if (file == NULL) {
        fprintf(stderr, "denpyo: no embedded SQL named %s\n", path);
        abort();
    }
    const struct {
        const char *word, *value;
    } variables[] = {
        {"schema", names->schema}, {"writer", names->writer}, {"relay", names->relay}, {"reader", names->reader}};
    struct text out = {0};
    append(&out, "", 0);
    for (const char *at = (const char *)file->text; *at;) {
        bool replaced = false;
        for (size_t i = 0; at[0] == ':' && (at[1] == '"' || at[1] == '\'') && i < 4 && !replaced; i++) {
            size_t length = strlen(variables[i].word);
            if (variables[i].value == NULL || strncmp(at + 2, variables[i].word, length) != 0 ||
                at[2 + length] != at[1])
                continue;
            append_quoted(&out, variables[i].value, at[1]);
            at += length + 3;
            replaced = true;
        }
        if (!replaced)
            append(&out, at++, 1);
    }
    return out.data;
}

char *sql_identifier(const char *name) {
    struct text out = {0};
    append_quoted(&out, name, '"');
    return out.data;
}
