/* queue.c: links rows into first-in first-out lists. */
#include "denpyo/queue.h"

#include "denpyo/batch.h"

void queue_push(struct row_queue *q, struct row *row) {
    row->next = NULL;
    if (q->last != NULL)
        q->last->next = row;
    else
        q->first = row;
    q->last = row;
    q->count++;
}

void queue_prepend(struct row_queue *q, struct row_queue *rows) {
    if (rows->first == NULL)
        return;
    rows->last->next = q->first;
    if (q->last == NULL)
        q->last = rows->last;
    q->first = rows->first;
    q->count += rows->count;
    *rows = (struct row_queue){0};
}

struct row *queue_pop(struct row_queue *q) {
    struct row *row = q->first;
    if (row == NULL)
        return NULL;
    q->first = row->next;
    if (q->first == NULL)
        q->last = NULL;
    q->count--;
    row->next = NULL;
    return row;
}
