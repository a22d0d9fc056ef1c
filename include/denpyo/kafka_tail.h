/* kafka_tail.h: reads the tails of partitions to see which messages arrived. */
#ifndef DENPYO_KAFKA_TAIL_H
#define DENPYO_KAFKA_TAIL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "denpyo/fault.h"
#include "denpyo/kafka.h"
#include "denpyo/loop.h"
#include "denpyo/worker.h"

/* Where to begin in a partition: offset >= 0, or -1 to begin at the first record that is not older than since_ms. */
struct kafka_tail_start {
    int32_t partition;
    int64_t offset;
};

/* A message that is looked for, and where it was found (offset -1: it was not). */
struct kafka_tail_wanted {
    unsigned char id[16];
    int32_t topic; /* index into topics */
    int32_t partition;
    int64_t offset;
    void *opaque;
};

struct kafka_tail_topic {
    char *name;
    struct kafka_tail_start *starts;
    size_t start_count;
    bool is_unreadable; /* out: the broker did not let us read it (or it is gone): what is not found is unknown */
    int code;           /* out: librdkafka's code for that */
    bool is_cut;        /* out: records that we would have read were deleted: what is not found may have arrived */
    bool *is_away;      /* out, at least once: of each partition, whether it has no leader and was not read; or NULL */
    int32_t partitions; /* out, with is_away */
    char *mark;         /* out, exactly once: the text of the mark that was committed for it, NULL = none */
    int64_t mark_offset;
};

/*
 * A look-up on the worker. It opens a consumer of its own, reads every partition of every topic from its start to its
 * end, again until the ends stand still for settle_ms, and matches the header "id" with the wanted ids; of several
 * copies the first counts. With a transactional id it first reads the marks. The caller fills topics, wanted and
 * since_ms; from submission until `done` the look-up belongs to the worker, except for the counters.
 */
struct kafka_tail {
    struct worker_job job;               /* first */
    const struct kafka_options *options; /* borrowed until done */
    struct kafka_tail_topic *topics;
    size_t topic_count;
    struct kafka_tail_wanted *wanted;
    size_t wanted_count;
    int64_t since_ms;
    bool is_read_committed; /* only what was committed counts; waits for transactions that are open */
    int settle_ms, timeout_ms;
    atomic_uint_fast64_t read; /* records read so far */
    atomic_bool is_cancelled;  /* set by the owner: come to an end soon */
    size_t found;              /* out */
    struct fault fault;        /* out: class FAULT_NONE when every readable partition was read to its end */
    void (*done)(struct kafka_tail *tail);
    void *context;
};

struct kafka_tail *kafka_tail_new(size_t topic_count, size_t wanted_count);
void kafka_tail_submit(struct kafka_tail *tail, struct worker *worker);
void kafka_tail_free(struct kafka_tail *tail);

#endif
