/* config_file.h: reads a JSON configuration file and hands over its leaves one by one. */
#ifndef DENPYO_CONFIG_FILE_H
#define DENPYO_CONFIG_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "denpyo/fault.h"

/* What JSON said a value is. */
enum config_leaf_type { CONFIG_LEAF_TEXT, CONFIG_LEAF_NUMBER, CONFIG_LEAF_BOOLEAN };

/* One value of the file. All is borrowed until the visitor returns. */
struct config_leaf {
    const char *name;  /* the keys on the way to it, joined by dots: "batch.rows" */
    const char *value; /* as text: "5000", "true" */
    enum config_leaf_type type;
};

typedef bool config_file_visitor(void *context, const struct config_leaf *leaf, struct fault *f);

/*
 * Calls `visit` for every value of the JSON object in the file `path`, in the file's order, until it returns false with
 * a fault, which then gets "file:line:column: " put in front. Objects nest names by dots; below "kafka", which must be
 * an object, names are taken as they stand. A top-level "$schema" is left to editors. Unreadable files, invalid JSON
 * (with line and column), lists and null give FAULT_USAGE. Blocks on the disk.
 */
bool config_file_read(const char *path, config_file_visitor *visit, void *context, struct fault *f)
    __attribute__((warn_unused_result));

/* The same for `size` bytes in memory, called `name` in faults. */
bool config_file_parse(const char *name, const char *bytes, size_t size, config_file_visitor *visit, void *context,
                       struct fault *f) __attribute__((warn_unused_result));

#endif
