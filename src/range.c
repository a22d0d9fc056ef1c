/* range.c: sends what parks rows of a topic in trouble together, and what takes and drops them when they come back. */
#include "denpyo/range.h"

#include <assert.h>

/* Fewer rows of a topic are parked by themselves: a range and its indexes weigh as much as about so many, and a small
 * trouble is easier to look at row by row. */
#define ROWS_LEAST 8

static void begin_call(const struct ledger *ledger, const struct batch *batch, struct pg_call *call) {
    *call = (struct pg_call){0};
    pg_add_text(call, ledger->lease->relay);
    pg_add_int(call, batch->id);
}

static void add_array(struct pg_call *call, struct pgarray *array) {
    pgarray_end(array);
    pg_add_binary(call, array->data, array->size);
}

/* Waits for its topic and has no parked row, nor anything that one would have to tell. */
static bool may_be_ranged(const struct row *row) {
    return row->outcome == ROW_HELD && row->hold->scope == SCOPE_TOPIC && row->trouble == NULL && row->attempts == 0 &&
           (!row->batch->is_retry || row->range_id != 0);
}

/* Of a topic: how many of the batch's rows may be in its range, and the range's place among those of the batch, from 1.
 */
struct slot {
    int32_t rows;
    int16_t place;
};

/* Gives each topic that has such rows its slot (topic.index); returns how many there are. */
static int count_rows(const struct batch *batch, struct slot *slots) {
    int used = 0;
    for (size_t i = 0; i < batch->count; i++) {
        struct row *row = &batch->rows[i];
        row->is_ranged = may_be_ranged(row);
        if (!row->is_ranged)
            continue;
        if (row->topic->index < 0) {
            assert(used < INT16_MAX);
            slots[used] = (struct slot){0};
            row->topic->index = used++;
        }
        slots[row->topic->index].rows++;
    }
    return used;
}

void range_send_park(const struct ledger *ledger, struct pg *pg, const struct batch *batch, struct pgarray *arrays) {
    enum { TOPICS, WAITS, IDS, PLACES };
    static const enum pgarray_type types[RANGE_ARRAYS] = {PGARRAY_TEXT, PGARRAY_INT8, PGARRAY_INT8, PGARRAY_INT2};
    struct slot slots[INT16_MAX];
    if (count_rows(batch, slots) == 0)
        return;
    for (int i = 0; i < RANGE_ARRAYS; i++)
        pgarray_begin(&arrays[i], types[i], 16, 16);
    int16_t places = 0;
    for (size_t i = 0; i < batch->count; i++) {
        struct row *row = &batch->rows[i];
        if (!row->is_ranged)
            continue;
        struct slot *slot = &slots[row->topic->index];
        row->is_ranged = slot->rows >= ROWS_LEAST;
        if (!row->is_ranged)
            continue;
        if (slot->place == 0) {
            slot->place = ++places;
            pgarray_add_bytes(&arrays[TOPICS], row->topic->name, row->topic->name_size);
            pgarray_add_int8(&arrays[WAITS], holds_blocker(row));
        }
        pgarray_add_int8(&arrays[IDS], row->id);
        pgarray_add_int2(&arrays[PLACES], slot->place);
    }
    for (size_t i = 0; i < batch->count; i++)
        batch->rows[i].topic->index = -1;
    if (places == 0)
        return;
    struct pg_call call;
    begin_call(ledger, batch, &call);
    for (int i = 0; i < RANGE_ARRAYS; i++)
        add_array(&call, &arrays[i]);
    statements_send(ledger->statements, pg, STATEMENT_RANGE_PARK, &call, NULL, NULL);
}

bool range_has_rows(const struct batch *batch) {
    for (size_t i = 0; i < batch->count; i++)
        if (batch->rows[i].range_id != 0)
            return true;
    return false;
}

void range_send_take(const struct ledger *ledger, struct pg *pg, const struct batch *batch) {
    if (!range_has_rows(batch))
        return;
    struct pgarray ranges = {0}, ids = {0};
    pgarray_begin(&ranges, PGARRAY_INT8, batch->count, 8);
    pgarray_begin(&ids, PGARRAY_INT8, batch->count, 8);
    for (size_t i = 0; i < batch->count; i++) {
        const struct row *row = &batch->rows[i];
        if (row->range_id == 0)
            continue;
        pgarray_add_int8(&ranges, row->range_id);
        pgarray_add_int8(&ids, row->id);
    }
    struct pg_call call;
    begin_call(ledger, batch, &call);
    add_array(&call, &ranges);
    add_array(&call, &ids);
    statements_send(ledger->statements, pg, STATEMENT_RANGE_TAKE, &call, NULL, NULL);
    pgarray_free(&ranges);
    pgarray_free(&ids);
}

void range_send_drop(const struct ledger *ledger, struct pg *pg, const struct batch *batch) {
    if (!range_has_rows(batch))
        return;
    struct pg_call call;
    begin_call(ledger, batch, &call);
    statements_send(ledger->statements, pg, STATEMENT_RANGE_DROP, &call, NULL, NULL);
}
