/* options.c (fuzz): words of a command line and of the environment: DENPYO_… goes to the environment, the rest to argv.
 */
#include <unistd.h>

#include "denpyo/config.h"
#include "fuzz.h"

#define WORDS 32

/* A configuration file is another target's: what it is read from could be a terminal or a device. */
static int names_a_file(const char *word) {
    return strncmp(word, "--config", 8) == 0 || strncmp(word, "DENPYO_CONFIG", 13) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = fuzz_text(data, size);
    char *arguments[WORDS + 1] = {NULL}, *variables[WORDS + 1] = {NULL};
    int argc = 0, envc = 0;
    /* Words are lines. */
    for (char *at = text, *end; at < text + size && argc + envc < WORDS; at = end + 1) {
        end = at + strcspn(at, "\n");
        *end = 0;
        if (names_a_file(at))
            continue;
        if (strncmp(at, "DENPYO_", 7) == 0)
            variables[envc++] = at;
        else
            arguments[argc++] = at;
    }
    char **before = environ;
    environ = variables;
    struct config c;
    struct fault f = {0};
    const char *words[WORDS + 1];
    int count = 0;
    bool ok = config_load(&c, argc, arguments, words, &count, &f);
    environ = before;
    FUZZ_CHECK(count >= 0 && count <= argc);
    if (ok) {
        char out[CONFIG_NAME_SIZE];
        for (size_t i = 0; i < config_option_count; i++)
            FUZZ_CHECK(config_value(&c, &config_options[i], out) != NULL);
        FUZZ_CHECK(c.poll_busy_ms <= c.poll_idle_ms && c.batch_rows <= c.inflight_messages);
        config_free(&c);
    } else {
        FUZZ_CHECK(f.class == FAULT_USAGE && *f.code && *f.text);
    }
    free(text);
    return 0;
}
