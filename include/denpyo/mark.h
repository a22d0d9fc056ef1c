/* mark.h: what a transaction says of its batches, kept by the broker with it as a consumer group's offset. */
#ifndef DENPYO_MARK_H
#define DENPYO_MARK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "denpyo/batch.h"

enum { MARK_TEXT_MOST = 4000 }; /* a broker keeps 4096 characters (offset.metadata.max.bytes) */

/*
 * The offset is the id of the newest batch of which a row was sent; the text tells of that batch and, as far as it has
 * room, of the batches before it, which of their rows were not sent (failed, held, rejected, delayed). It is stored for
 * partition 0 of the topic of one of that batch's rows: whoever finds the batch open finds the topic, too.
 *
 * A batch is known again by a hash of its message ids, not by its number: numbers come again in a database that was
 * restored to an earlier point, and two outboxes may use one transactional id by mistake.
 */
struct mark {
    int64_t batch_id;
    struct topic *topic;
    char text[MARK_TEXT_MOST + 1];
};

/* Writes the mark of what is acknowledged or dispatched in the batches from `first` to the one with id upto_id;
 * text_most bounds its text. False: nothing of them was sent to a topic that can have a mark. */
bool mark_write(struct mark *m, const struct batch *first, int64_t upto_id, size_t text_most)
    __attribute__((warn_unused_result));

/* Marks the rows of the batch that were sent, if the mark tells of it: true then. The text may be anybody's. */
bool mark_apply(int64_t batch_id, const char *text, struct batch *batch) __attribute__((warn_unused_result));

#endif
