/* config_file.c: walks the JSON of a configuration file and remembers where in the file each key stands. */
#include "denpyo/config_file.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST_FILE (1 << 20) /* bytes; nobody writes a configuration of a megabyte by intent */
#define LONGEST_NAME 200       /* bytes; deeper objects are no options */

struct walk {
    const char *file;
    const char *bytes;
    size_t size;
    size_t keys; /* keys visited so far: jansson keeps the file's order, so the n-th visited is the n-th in the file */
    config_file_visitor *visit;
    void *context;
};

/* Past the string whose opening quote is at `at`. */
static size_t skip_string(const struct walk *w, size_t at) {
    for (at++; at < w->size && w->bytes[at] != '"'; at++)
        if (w->bytes[at] == '\\')
            at++;
    return at + 1;
}

static bool is_key(const struct walk *w, size_t after) {
    while (after < w->size && strchr(" \t\r\n", w->bytes[after]) && w->bytes[after])
        after++;
    return after < w->size && w->bytes[after] == ':';
}

/* Puts "file:line:column: " of the key that is visited now before the fault's text. The file is known to be valid JSON.
 */
static bool locate(const struct walk *w, struct fault *f) {
    size_t seen = 0, start = 0;
    for (size_t at = 0; at < w->size; at++) {
        if (w->bytes[at] != '"')
            continue;
        size_t after = skip_string(w, at);
        if (is_key(w, after) && ++seen == w->keys) {
            start = at;
            break;
        }
        at = after - 1;
    }
    size_t line = 1, column = 1;
    for (size_t at = 0; at < start; at++) {
        if (w->bytes[at] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)w->bytes[at] & 0xc0) != 0x80) {
            column++;
        }
    }
    if (f == NULL)
        return false;
    struct fault plain = *f;
    return fault_set(f, plain.class, plain.code, "%s:%zu:%zu: %s", w->file, line, column, plain.text);
}

static bool visit_leaf(struct walk *w, const char *name, const json_t *value, struct fault *f) {
    struct config_leaf leaf = {.name = name};
    if (strcmp(name, "kafka") == 0)
        return fault_set(f, FAULT_USAGE, "CONFIG_TYPE",
                         "\"kafka\" must be an object of librdkafka properties, as in {\"compression.type\": \"lz4\"}");
    if (json_is_array(value) || json_is_null(value) || json_is_object(value))
        return fault_set(f, FAULT_USAGE, "CONFIG_TYPE", "\"%s\" must be text, a number, true or false, not %s", name,
                         json_is_array(value)  ? "a list"
                         : json_is_null(value) ? "null"
                                               : "an object");
    if (json_is_string(value)) {
        leaf.type = CONFIG_LEAF_TEXT;
        leaf.value = json_string_value(value);
        return w->visit(w->context, &leaf, f);
    }
    leaf.type = json_is_number(value) ? CONFIG_LEAF_NUMBER : CONFIG_LEAF_BOOLEAN;
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    if (text == NULL)
        abort();
    leaf.value = text;
    bool ok = w->visit(w->context, &leaf, f);
    free(text);
    return ok;
}

/* Recursion is as deep as the JSON, which jansson bounds at 2048. */
static bool visit_object(struct walk *w, const char *prefix, json_t *object, struct fault *f) {
    const char *key;
    json_t *value;
    bool nests = strcmp(prefix, "kafka.") != 0 && strlen(prefix) < LONGEST_NAME;
    bool ok = true;
    json_object_foreach(object, key, value) {
        w->keys++;
        if (*prefix == 0 && strcmp(key, "$schema") == 0 && json_is_string(value))
            continue;
        char *name;
        bool inner = nests && json_is_object(value);
        if (asprintf(&name, "%s%s%s", prefix, key, inner ? "." : "") < 0)
            abort();
        if (inner)
            ok = visit_object(w, name, value, f);
        else
            ok = visit_leaf(w, name, value, f) || locate(w, f);
        free(name);
        if (!ok)
            return false;
    }
    return true;
}

bool config_file_parse(const char *name, const char *bytes, size_t size, config_file_visitor *visit, void *context,
                       struct fault *f) {
    json_error_t error;
    json_t *root = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        return fault_set(f, FAULT_USAGE, "CONFIG_JSON", "%s:%d:%d: not valid JSON: %s", name, error.line,
                         error.column > 0 ? error.column : 1, error.text);
    struct walk w = {.file = name, .bytes = bytes, .size = size, .visit = visit, .context = context};
    bool ok = json_is_object(root) ? visit_object(&w, "", root, f)
                                   : fault_set(f, FAULT_USAGE, "CONFIG_JSON",
                                               "%s:1:1: the configuration must be a JSON object: { … }", name);
    json_decref(root);
    return ok;
}

bool config_file_read(const char *path, config_file_visitor *visit, void *context, struct fault *f) {
    char *bytes = NULL;
    bool ok = false;
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fault_set(f, FAULT_USAGE, "CONFIG_FILE", "cannot open the configuration file %s: %s", path, strerror(errno));
        goto out;
    }
    bytes = malloc(LARGEST_FILE + 1);
    if (bytes == NULL)
        abort();
    size_t size = fread(bytes, 1, LARGEST_FILE + 1, file);
    if (ferror(file))
        fault_set(f, FAULT_USAGE, "CONFIG_FILE", "cannot read the configuration file %s: %s", path, strerror(errno));
    else if (size > LARGEST_FILE)
        fault_set(f, FAULT_USAGE, "CONFIG_FILE", "the configuration file %s is larger than %d bytes", path,
                  LARGEST_FILE);
    else
        ok = config_file_parse(path, bytes, size, visit, context, f);
out:
    if (file)
        fclose(file);
    free(bytes);
    return ok;
}
