/* pace.h: when to look at the outbox again: soon after rows came, seldom in a silence, and less often when many come.
 */
#ifndef DENPYO_PACE_H
#define DENPYO_PACE_H

#include <stdint.h>

/*
 * A batch costs the database, the broker and the relay the same whether it has one row or a hundred. Where a thousand
 * rows a second come, looking again at once keeps them early and costs little; where ten thousand come, it makes
 * hundreds of small batches and takes from the writers the processors that they need. So the pause between two looks
 * grows with the rate of rows, up to linger_us; and where more comes than a page holds there is none.
 *
 * After a look that found nothing the pause is a share of the silence so far: rows that come at any steady rate wait
 * for no more than that share of the time between them, and a long silence costs next to nothing.
 */
struct pace {
    int64_t busy_us;   /* the shortest pause after a look that found nothing */
    int64_t idle_us;   /* the longest */
    int64_t linger_us; /* the longest pause for rows to gather; 0 = none ever */
    int64_t heard_us;  /* when rows were seen last, 0 = never */
    int64_t began_us;  /* when the look before the newest began that found rows, 0 = none yet */
    int64_t rows;      /* claimed since */
    double rows_a_second;
};

void pace_init(struct pace *p, int64_t busy_ms, int64_t idle_ms, int64_t linger_ms);
/* A look ended at now_us and found rows. */
void pace_heard(struct pace *p, int64_t now_us);
/* A look ended at now_us and found none. When the next look is due. */
int64_t pace_silent_us(struct pace *p, int64_t now_us);
/* Rows were claimed. */
void pace_claimed(struct pace *p, int64_t rows);
/* All rows that the look of looked_us found are claimed; a page has at most page_rows. When the next look is due. */
int64_t pace_next_us(struct pace *p, int64_t looked_us, int64_t page_rows);

#endif
