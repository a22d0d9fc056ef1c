/* pace.h: how long new rows may gather before the next look: fewer, larger batches when many come. */
#ifndef DENPYO_PACE_H
#define DENPYO_PACE_H

#include <stdint.h>

/*
 * A batch costs the database, the broker and the relay the same whether it has one row or a hundred. Where a thousand
 * rows a second come, looking again at once keeps them early and costs little; where ten thousand come, it makes
 * hundreds of small batches and takes from the writers the processors that they need. So the pause between two looks
 * grows with the rate of rows, up to linger_us; and where more comes than a page holds there is none.
 */
struct pace {
    int64_t linger_us; /* the longest pause; 0 = none ever */
    int64_t began_us;  /* when the look before the newest began that found rows, 0 = none yet */
    int64_t rows;      /* claimed since */
    double rows_a_second;
};

void pace_init(struct pace *p, int64_t linger_ms);
/* Rows were claimed. */
void pace_claimed(struct pace *p, int64_t rows);
/* All rows that the look of looked_us found are claimed; a page has at most page_rows. When the next look is due. */
int64_t pace_next_us(struct pace *p, int64_t looked_us, int64_t page_rows);

#endif
