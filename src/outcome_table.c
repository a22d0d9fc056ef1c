/* outcome_table.c: the rows that say what each report makes of a message, and how they are found and printed. */
#include "denpyo/outcome_table.h"

#include <stdlib.h>

#include "denpyo/kafka_code.h"

#define ANY OUTCOME_TABLE_ANY

/* Sources: librdkafka 2.0.2 and Kafka 4.1.1, measured over 155,000 failed messages. The first row that fits counts. */
const struct outcome_table_row outcome_table[] = {
    {OUTCOME_ACKNOWLEDGED, ANY, OUTCOME_DISPATCHED, "The broker has it; partition and offset are on record."},
    {OUTCOME_MAYBE_PERSISTED, ANY, OUTCOME_UNKNOWN,
     "Nobody can say whether the broker has it: the topic's end is read before it goes again."},

    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_TIMED_OUT_MESSAGE, OUTCOME_WAITS,
     "An outage: unreachable, no leader, too few replicas. Nobody's attempt."},
    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_PURGE_QUEUE, OUTCOME_WAITS, "It never left this process."},
    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_PURGE_INFLIGHT, OUTCOME_WAITS, "Given up with its transaction; it goes again."},
    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_TRANSACTION_STATE, OUTCOME_WAITS,
     "Its transaction is over at the broker: aborted; it goes again in the next."},
    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_PRODUCER_ID_MAPPING, OUTCOME_WAITS,
     "The transactional.id expired at the broker: aborted; it goes again in the next."},
    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_UNKNOWN_PRODUCER_ID, OUTCOME_WAITS,
     "The broker forgot this producer; the client begins a new epoch, and it goes again."},
    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_TOO_LARGE, OUTCOME_REJECTED,
     "Larger than the topic's max.message.bytes; its whole set got the error, so each goes alone first."},
    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_BAD_TIMESTAMP, OUTCOME_REJECTED,
     "The topic accepts no such record time; judged alone."},
    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_INVALID_RECORD, OUTCOME_REJECTED,
     "The broker's validation refuses it, as a compacted topic does without a key; judged alone."},
    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_TOPIC_AUTHORIZATION, OUTCOME_TOPIC, "The relay may not write to the topic."},
    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_UNKNOWN_TOPIC_OR_PARTITION, OUTCOME_TOPIC, "The topic is not there (any more)."},
    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_UNKNOWN_TOPIC, OUTCOME_TOPIC, "The client lost the topic."},
    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_UNKNOWN_PARTITION, OUTCOME_TOPIC, "The topic has fewer partitions than before."},
    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_DESTROY, OUTCOME_TOPIC, "The topic was deleted under it."},
    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_CLUSTER_AUTHORIZATION, OUTCOME_RELAY,
     "The relay may not write to any topic, or not idempotently."},
    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_TRANSACTIONAL_ID_AUTHORIZATION, OUTCOME_RELAY,
     "The relay may not use its transactional.id."},
    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_FATAL, OUTCOME_FATAL, "The producer failed while it waited."},
    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_FENCED, OUTCOME_FATAL, "Another producer has this one's transactional.id."},
    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_PRODUCER_EPOCH, OUTCOME_FATAL,
     "Another producer has this one's transactional.id, or its transaction timed out."},
    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_PRODUCER_FENCED, OUTCOME_FATAL, "The same, as newer brokers say it."},
    {OUTCOME_NOT_PERSISTED, KAFKA_CODE_OUT_OF_ORDER, OUTCOME_FATAL, "The broker lost the end of its log."},
    {OUTCOME_NOT_PERSISTED, ANY, OUTCOME_FAILED,
     "It may pass later: again after a backoff, once it failed alone; until then it holds its key."},

    {OUTCOME_REFUSED, KAFKA_CODE_QUEUE_FULL, OUTCOME_WAITS, "Back-pressure: it goes after the next report."},
    {OUTCOME_REFUSED, KAFKA_CODE_TOO_LARGE, OUTCOME_REJECTED, "Larger than the client's message.max.bytes."},
    {OUTCOME_REFUSED, KAFKA_CODE_TOPIC_AUTHORIZATION, OUTCOME_TOPIC, "The relay may not see the topic."},
    {OUTCOME_REFUSED, KAFKA_CODE_UNKNOWN_TOPIC, OUTCOME_TOPIC, "The topic is not there."},
    {OUTCOME_REFUSED, KAFKA_CODE_UNKNOWN_PARTITION, OUTCOME_TOPIC, "The topic has fewer partitions than before."},
    {OUTCOME_REFUSED, KAFKA_CODE_FATAL, OUTCOME_FATAL, "The producer has failed."},
    {OUTCOME_REFUSED, KAFKA_CODE_STATE, OUTCOME_WAITS, "Its transaction has failed already and is to be aborted."},
    {OUTCOME_REFUSED, ANY, OUTCOME_FAILED, "It may pass later: again after a backoff; until then it holds its key."},

    {OUTCOME_METADATA, ANY, OUTCOME_TOPIC, "The topic is not there, or not for this relay to see."},

    {OUTCOME_FATAL_ERROR, KAFKA_CODE_CLUSTER_AUTHORIZATION, OUTCOME_RELAY,
     "The relay may not write to any topic: it never heals without a grant."},
    {OUTCOME_FATAL_ERROR, KAFKA_CODE_TRANSACTIONAL_ID_AUTHORIZATION, OUTCOME_RELAY,
     "The relay may not use its transactional.id: grant it Write and Describe."},
    {OUTCOME_FATAL_ERROR, ANY, OUTCOME_FATAL, "The producer is made anew; what is open is looked up first."},
};
const size_t outcome_table_count = sizeof outcome_table / sizeof *outcome_table;

static const char *const reports[] = {
    [OUTCOME_ACKNOWLEDGED] = "acknowledged",     [OUTCOME_MAYBE_PERSISTED] = "maybe persisted",
    [OUTCOME_NOT_PERSISTED] = "not persisted",   [OUTCOME_REFUSED] = "refused at once",
    [OUTCOME_METADATA] = "look-up of the topic", [OUTCOME_FATAL_ERROR] = "fatal for the producer",
};

static const char *const names[] = {
    [OUTCOME_DISPATCHED] = "dispatched", [OUTCOME_UNKNOWN] = "unknown",    [OUTCOME_WAITS] = "waits",
    [OUTCOME_FAILED] = "failed",         [OUTCOME_REJECTED] = "rejected",  [OUTCOME_TOPIC] = "topic trouble",
    [OUTCOME_RELAY] = "relay trouble",   [OUTCOME_FATAL] = "new producer",
};

const struct outcome_table_row *outcome_table_find(enum outcome_report report, int code) {
    for (size_t i = 0; i < outcome_table_count; i++)
        if (outcome_table[i].report == report && (outcome_table[i].code == code || outcome_table[i].code == ANY))
            return &outcome_table[i];
    abort(); /* each report ends with a row for any code */
}

void outcome_table_print(FILE *out) {
    fprintf(out, "%-23s%-43s%s\n", "report", "code", "becomes");
    for (size_t i = 0; i < outcome_table_count; i++) {
        const struct outcome_table_row *row = &outcome_table[i];
        char code[60];
        if (row->code == ANY)
            snprintf(code, sizeof code, "any");
        else
            snprintf(code, sizeof code, "%d %s", row->code, kafka_code_name(row->code));
        fprintf(out, "%-23s%-43s%s\n    %s\n", reports[row->report], code, names[row->becomes], row->sentence);
    }
}
