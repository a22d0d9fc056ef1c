/* queue.h: lists of rows that wait for something. */
#ifndef DENPYO_QUEUE_H
#define DENPYO_QUEUE_H

#include <stddef.h>

struct row;

/* A first-in first-out list of rows, linked through row.next. Zero is empty. */
struct row_queue {
    struct row *first, *last;
    size_t count;
};
void queue_push(struct row_queue *q, struct row *row);
void queue_prepend(struct row_queue *q, struct row_queue *rows); /* all of rows before all of q; empties rows */
struct row *queue_pop(struct row_queue *q);                      /* NULL when empty */

#endif
