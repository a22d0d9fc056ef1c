/* fuzz.h: what every fuzz target needs: the entry point, and a check that ends the run with the input kept. */
#ifndef DENPYO_FUZZ_H
#define DENPYO_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Says what does not hold and aborts, which libFuzzer takes for a crash: it writes the input down. */
#define FUZZ_CHECK(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);                             \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* The input as a NUL-terminated string of its own, so that a read past the end is seen. The caller frees. */
static inline char *fuzz_text(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    if (text == NULL)
        abort();
    if (size > 0)
        memcpy(text, data, size);
    text[size] = 0;
    return text;
}

#endif
