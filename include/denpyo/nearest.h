/* nearest.h: which known word a misspelt one probably meant. */
#ifndef DENPYO_NEAREST_H
#define DENPYO_NEAREST_H

#include <stddef.h>

/*
 * The word of `known` with the smallest edit distance to `word`, or NULL when none is near (more than a third of the
 * letters, at least two, would have to change). Borrowed from `known`.
 */
const char *nearest_word(const char *word, const char *const *known, size_t count);

#endif
