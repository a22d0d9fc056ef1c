/* pace.h: how long new rows may gather before the next look: fewer, larger batches when many come. */
#ifndef DENPYO_PACE_H
#define DENPYO_PACE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * A batch costs the database, the broker and the relay nearly the same whether it has one row or a hundred. Where a
 * thousand rows a second come, looking again at once keeps them early and costs little; where ten thousand come, it
 * makes hundreds of small batches and takes from the writers the processors that they need. So the pause between two
 * looks grows with the rate of rows; and with the time that looks take, which tells how scarce the processors are: at
 * most a fifth of the time is spent on looking. It is never longer than linger_us, and there is none where more comes
 * than a page holds.
 */
struct pace {
    int64_t linger_us; /* the longest pause; 0 = none ever */
    int64_t began_us;  /* when the look before the newest began that found rows, 0 = none yet */
    int64_t rows;      /* claimed since */
    int64_t took_us;   /* from a look to the claim of what it found, a recent average */
    double rows_a_second;
    bool is_one_page; /* the newest look found no more than that */
};

void pace_init(struct pace *p, int64_t linger_ms);
/* Rows were claimed. */
void pace_claimed(struct pace *p, int64_t rows);
/* All that a look found is claimed and committed, so long after it began. */
void pace_took(struct pace *p, int64_t took_us);
/* All rows that the look of looked_us found are claimed; a page has at most page_rows. When the next look is due. */
int64_t pace_next_us(struct pace *p, int64_t looked_us, int64_t page_rows);

#endif
