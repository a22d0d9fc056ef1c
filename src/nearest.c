/* nearest.c: Levenshtein distance in one row of memory, for "did you mean …?". */
#include "denpyo/nearest.h"

#include <string.h>

#define LONGEST 64 /* longer words get no suggestion */

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t distance(const char *a, size_t a_size, const char *b, size_t b_size) {
    size_t row[LONGEST + 1];
    for (size_t j = 0; j <= b_size; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_size; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            size_t above = row[j];
            size_t change = diagonal + (a[i - 1] != b[j - 1]);
            row[j] = smaller(change, smaller(row[j - 1], above) + 1);
            diagonal = above;
        }
    }
    return row[b_size];
}

const char *nearest_word(const char *word, const char *const *known, size_t count) {
    size_t size = strlen(word);
    if (size > LONGEST)
        return NULL;
    size_t bound = size / 3 < 2 ? 2 : size / 3;
    const char *best = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t known_size = strlen(known[i]);
        if (known_size > LONGEST)
            continue;
        size_t d = distance(word, size, known[i], known_size);
        if (d <= bound && d < known_size) {
            best = known[i];
            bound = d > 0 ? d - 1 : 0;
            if (d == 0)
                break;
        }
    }
    return best;
}
