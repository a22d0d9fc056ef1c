/* outcome_table.h: what each report of the broker or of its client makes of a message: one table, printable. */
#ifndef DENPYO_OUTCOME_TABLE_H
#define DENPYO_OUTCOME_TABLE_H

#include <stddef.h>
#include <stdio.h>

/*
 * Where a code comes from. The first three are delivery reports; rd_kafka_message_status() tells them apart, never the
 * code. REFUSED: rd_kafka_producev() said no at once. METADATA: the look-up of a topic. FATAL_ERROR: of the producer.
 */
enum outcome_report {
    OUTCOME_ACKNOWLEDGED,
    OUTCOME_MAYBE_PERSISTED,
    OUTCOME_NOT_PERSISTED,
    OUTCOME_REFUSED,
    OUTCOME_METADATA,
    OUTCOME_FATAL_ERROR,
};

/*
 * What becomes of the message.
 * WAITS: nobody's attempt; it goes again as soon as it can. FAILED: an attempt; again after a backoff. REJECTED: its
 * own fault, once it failed alone. UNKNOWN: looked up before it goes again (option on_unknown). TOPIC: the whole topic
 * is held and probed. RELAY: no message can go until a person changes something; the producer is made anew with
 * backoff. FATAL: the producer is made anew; what is open is looked up.
 */
enum outcome {
    OUTCOME_DISPATCHED,
    OUTCOME_UNKNOWN,
    OUTCOME_WAITS,
    OUTCOME_FAILED,
    OUTCOME_REJECTED,
    OUTCOME_TOPIC,
    OUTCOME_RELAY,
    OUTCOME_FATAL,
};

#define OUTCOME_TABLE_ANY (-10000) /* every code that no row above names */

struct outcome_table_row {
    enum outcome_report report;
    int code;
    enum outcome becomes;
    const char *sentence;
};
extern const struct outcome_table_row outcome_table[];
extern const size_t outcome_table_count;

/* The first row that fits; there is one for every pair. */
const struct outcome_table_row *outcome_table_find(enum outcome_report report, int code);

/* Prints all rows, aligned, one or two lines each (`denpyo help outcomes`). */
void outcome_table_print(FILE *out);

#endif
