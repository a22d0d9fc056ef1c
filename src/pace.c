/* pace.c: the pause between two looks, from the rate of rows and from how long there were none. */
#include "denpyo/pace.h"

#define CALM_RATE 2000.0   /* rows a second up to which there is no pause */
#define FULL_RATE 15000.0  /* from here on it is as long as wanted; it grows with the square in between */
#define WANTED_ROWS 2000.0 /* of a batch: more make it hardly cheaper for each */
#define MEMORY_US 50000.0  /* how far back the rate looks */
#define SILENCE_SHARE 8    /* of the silence is the pause that follows */
#define US_A_SECOND 1000000.0

void pace_init(struct pace *p, int64_t busy_ms, int64_t idle_ms, int64_t linger_ms) {
    *p = (struct pace){.busy_us = busy_ms * 1000, .idle_us = idle_ms * 1000, .linger_us = linger_ms * 1000};
}

void pace_heard(struct pace *p, int64_t now_us) {
    p->heard_us = now_us;
}

int64_t pace_silent_us(struct pace *p, int64_t now_us) {
    if (p->heard_us == 0)
        p->heard_us = now_us;
    int64_t pause_us = (now_us - p->heard_us) / SILENCE_SHARE;
    if (pause_us < p->busy_us)
        pause_us = p->busy_us;
    return now_us + (pause_us < p->idle_us ? pause_us : p->idle_us);
}

void pace_claimed(struct pace *p, int64_t rows) {
    p->rows += rows;
}

/* What came since the look before, weighed by how much of the remembered time that is. */
static void learn(struct pace *p, int64_t looked_us) {
    double span_us = (double)(looked_us - p->began_us);
    if (p->began_us > 0 && span_us > 0) {
        double weight = span_us / (span_us + MEMORY_US);
        p->rows_a_second += ((double)p->rows * US_A_SECOND / span_us - p->rows_a_second) * weight;
    }
    p->began_us = looked_us;
    p->rows = 0;
}

int64_t pace_next_us(struct pace *p, int64_t looked_us, int64_t page_rows) {
    int64_t rows = p->rows;
    learn(p, looked_us);
    if (rows >= page_rows || p->rows_a_second <= CALM_RATE)
        return looked_us;
    double share = (p->rows_a_second - CALM_RATE) / (FULL_RATE - CALM_RATE);
    double most_us = (double)p->linger_us * (share < 1 ? share * share : 1);
    double wanted_us = WANTED_ROWS / p->rows_a_second * US_A_SECOND;
    return looked_us + (int64_t)(wanted_us < most_us ? wanted_us : most_us);
}
