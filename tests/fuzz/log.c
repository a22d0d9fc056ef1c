/* log.c (fuzz): any text in a log line: it stays one line, and in JSON it can be read back. */
#include "denpyo/log.h"

#include <jansson.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"

/* What the event wrote to standard error. */
static size_t logged(const char *text, enum log_format format, char *out, size_t size) {
    static int file = -1, real;
    if (file < 0) {
        file = memfd_create("log", 0);
        real = dup(STDERR_FILENO);
    }
    FUZZ_CHECK(ftruncate(file, 0) == 0 && lseek(file, 0, SEEK_SET) == 0);
    log_setup(format, LOG_INFO);
    dup2(file, STDERR_FILENO);
    log_event(LOG_INFO, "event", log_str("text", text), log_int("number", 7), LOG_END);
    dup2(real, STDERR_FILENO);
    ssize_t got = pread(file, out, size - 1, 0);
    FUZZ_CHECK(got > 0);
    out[got] = 0;
    return (size_t)got;
}

static void check_line(const char *line, size_t size) {
    FUZZ_CHECK(strlen(line) == size && strchr(line, '\n') == line + size - 1);
    for (size_t i = 0; i + 1 < size; i++) {
        unsigned char c = (unsigned char)line[i], next = (unsigned char)line[i + 1];
        FUZZ_CHECK(c >= ' ' && c != 0x7f);
        FUZZ_CHECK(c != 0xc2 || next >= 0xa0); /* no C1 control character, which a terminal obeys as well */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char line[1 << 20];
    if (size > 10000)
        return 0;
    char *text = fuzz_text(data, size);
    check_line(line, logged(text, LOG_TEXT, line, sizeof line));
    size_t length = logged(text, LOG_JSON, line, sizeof line);
    check_line(line, length);
    json_t *tree = json_loads(line, 0, NULL);
    FUZZ_CHECK(json_is_string(json_object_get(tree, "text")));
    json_decref(tree);
    free(text);
    return 0;
}
