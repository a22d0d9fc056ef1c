/* config_file.c (fuzz): any bytes as the configuration file: a configuration that keeps the table's rules, or a fault.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "denpyo/config.h"
#include "denpyo/config_mask.h"
#include "fuzz.h"

static void check_values(const struct config *c) {
    for (size_t i = 0; i < config_option_count; i++) {
        const struct config_option *option = &config_options[i];
        char out[CONFIG_NAME_SIZE];
        const char *value = config_value(c, option, out);
        FUZZ_CHECK(value != NULL && config_origin(c, option->name) != NULL);
        if (option->type == CONFIG_INTEGER)
            FUZZ_CHECK(strtoll(value, NULL, 10) >= option->min && strtoll(value, NULL, 10) <= option->max);
        if (option->type == CONFIG_TEXT)
            FUZZ_CHECK(strlen(value) >= (size_t)option->min && strlen(value) <= (size_t)option->max);
    }
    for (size_t i = 0; i < c->kafka_count; i++)
        FUZZ_CHECK(*c->kafka[i].name != 0 && config_mask_property(c->kafka[i].name, c->kafka[i].value) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("config", 0);
        char path[40];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        setenv("DENPYO_CONFIG", path, 1);
    }
    FUZZ_CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    struct config c;
    struct fault f = {0};
    const char *words[1];
    int count;
    if (config_load(&c, 0, NULL, words, &count, &f)) {
        check_values(&c);
        config_free(&c);
    } else {
        FUZZ_CHECK(f.class == FAULT_USAGE && *f.code && *f.text);
    }
    return 0;
}
