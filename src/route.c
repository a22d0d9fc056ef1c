/* route.c: chooses each row's partition as the Java client would, and keeps the partition counts fresh. */
#include "denpyo/route.h"

#include <stdlib.h>
#include <string.h>

#include "denpyo/log.h"
#include "denpyo/loop.h"
#include "denpyo/outcome.h"
#include "denpyo/outcome_table.h"
#include "denpyo/partition.h"

#define KEYLESS_RUN 100  /* rows without a key go to one partition for so long: larger groups */
#define LOOKUP_MOST 2000 /* topics a look-up, so that none is long */
#define ALONE_MOST 200   /* the same where each is a request of its own */
#define TOGETHER_LEAST 4 /* topics of one request, which names all the open ones, too: */
#define TOGETHER_MOST 16 /* so many of these for each that is asked for cost less than its own request would */
#define RETRY_LOOKUP_US 500000
#define HEADROOM_BYTES 200 /* more than a record batch has besides key, value and headers */
#define VANISHED_US                                                                                                    \
    3000000 /* more than topic.metadata.propagation.max.ms: time for the rows to come back by themselves */

void route_ask(struct publisher *p, struct topic *topic) {
    if (topic->asked)
        return;
    topic->asked = true;
    p->wanted++;
}

/* It was never looked up, but that is under way, or asked for now. */
static void expect(struct publisher *p, struct topic *topic) {
    if (p->lookup == NULL || topic->look_up != p->lookups_begun)
        route_ask(p, topic);
}

/* What no broker could take: a row that went past the schema's constraints. */
static bool is_defective(struct publisher *p, struct row *row) {
    static const char *const texts[] = {
        [DEFECT_PARTITION] = "its partition is negative",
        [DEFECT_PARTS] = "it has both a key and key_bytes, or not exactly one of payload, payload_bytes and tombstone",
        [DEFECT_MESSAGE_ID] = "it has no message_id",
    };
    static const char remedy[] = "insert what it was to say as another message, skip this one, and restore the "
                                 "constraints of outbox.message";
    if (row->defect == DEFECT_NONE)
        return false;
    if (row->defect == DEFECT_TOPIC)
        outcome_reject(p, row, "MALFORMED",
                       "Kafka has no topics of such a name (1 to 249 letters, digits, '.', '_', '-'): \"%.60s\"; %s",
                       row->topic->name, remedy);
    else
        outcome_reject(p, row, "MALFORMED", "%s; %s", texts[row->defect], remedy);
    return true;
}

/* Bytes of the row's header names and values; 0 when they cannot be headers: it is rejected for that later. */
static int64_t header_bytes(struct publisher *p, const struct row *row) {
    struct fault f = {0};
    int64_t bytes = 0;
    if (!envelope_headers_parse(&p->headers, row->headers, (size_t)row->headers_size, &f))
        return 0;
    for (size_t i = 0; i < p->headers.count; i++)
        bytes += (int64_t)(p->headers.items[i].name_size + p->headers.items[i].value_size);
    return bytes;
}

/* Too large to be accepted wherever it goes: known without sending it. librdkafka does not count the headers, and a
 * request that is larger than a broker reads would end the connection, again and again. */
static bool is_too_large(struct publisher *p, struct row *row) {
    int64_t most = kafka_message_max_bytes(p->kafka);
    int64_t payload = row->oversize > 0 ? row->oversize : row->value_size > 0 ? row->value_size : 0;
    int64_t key = row->key_size > 0 ? row->key_size : 0, headers = 0;
    if (row->oversize < 0) {
        outcome_reject(p, row, "MSG_SIZE_TOO_LARGE",
                       "its %s alone %lld bytes, more than the limit of %lld (kafka.message.max.bytes)",
                       row->key == NULL ? "key or its headers have" : "headers have", (long long)-row->oversize,
                       (long long)most);
        return true;
    }
    if (row->headers_size > 0 && payload + key + row->headers_size > most)
        headers = header_bytes(p, row);
    int64_t size = payload + key + headers;
    if (size <= most)
        return false;
    outcome_reject(p, row, "MSG_SIZE_TOO_LARGE",
                   "the message has %lld bytes (payload %lld, key %lld%s%.0lld), more than the limit of %lld "
                   "(kafka.message.max.bytes)",
                   (long long)size, (long long)payload, (long long)key, headers > 0 ? ", headers " : "",
                   (long long)headers, (long long)most);
    return true;
}

static void fail_absent(struct publisher *p, struct row *row) {
    int code = row->topic->code;
    outcome_fail(p, row, SCOPE_TOPIC, kafka_code_name(code), "topic %s: %s; create it, or grant the relay access to it",
                 row->topic->name, kafka_code_text(code));
}

/* The row waits in its topic's backlog; the look-up that it may be judged by has not begun yet. */
static void wait_in_backlog(struct publisher *p, struct row *row) {
    row->look_up = p->lookups_begun + 1;
    queue_push(&row->topic->backlog, row);
}

/* Whether the topic was looked up since the row came, so that it may be rejected for what the topic is. If not, it and
 * those after it wait for a look-up. */
static bool is_sure(struct publisher *p, struct row *row) {
    struct topic *topic = row->topic;
    if (row->look_up != 0 && topic->answered >= row->look_up)
        return true;
    topic->is_doubted = true;
    wait_in_backlog(p, row);
    route_ask(p, topic);
    return false;
}

/* The bytes of the row's record batch when they are more than the topic accepts; 0 = they are not, or nobody can tell.
 */
static int64_t excess_size(struct publisher *p, const struct row *row) {
    int64_t most = row->topic->max_message_bytes;
    int64_t about = HEADROOM_BYTES + row->value_size + row->key_size + row->headers_size;
    if (most == 0 || about <= most || kafka_is_compressing(p->kafka))
        return 0;
    struct fault f = {0};
    bool has_headers = row->headers_size >= 0;
    if (has_headers && !envelope_headers_parse(&p->headers, row->headers, (size_t)row->headers_size, &f))
        return 0; /* it is rejected for them later */
    int64_t size =
        envelope_size(row->key != NULL ? row->key_size : -1, row->value_size, has_headers ? &p->headers : NULL);
    return size > most ? size : 0;
}

/* What the topic would refuse, known without sending it: rejected, or waiting for a fresh look-up. */
static bool is_refused(struct publisher *p, struct row *row) {
    struct topic *topic = row->topic;
    bool lacks_key = topic->is_compacted && row->key == NULL;
    int64_t size = excess_size(p, row);
    if (!lacks_key && size == 0)
        return false;
    if (!is_sure(p, row))
        return true;
    if (lacks_key)
        outcome_reject(p, row, kafka_code_name(KAFKA_CODE_INVALID_RECORD),
                       "it has no key, which topic %s refuses: its cleanup.policy says compact", topic->name);
    else
        outcome_reject(p, row, kafka_code_name(KAFKA_CODE_TOO_LARGE),
                       "the message has %lld bytes as a record batch (payload %d, key %d, headers %d), more than the "
                       "max.message.bytes of topic %s, %lld",
                       (long long)size, row->value_size, row->key_size, row->headers_size, topic->name,
                       (long long)topic->max_message_bytes);
    return true;
}

/* An explicit partition that the topic does not have. The count may be stale, or the partition just being made: the row
 * fails, and is rejected when it comes back and a look-up that began since says so, too; a row that waited for such a
 * one had its time already. */
static void refuse_partition(struct publisher *p, struct row *row) {
    struct topic *topic = row->topic;
    if (row->attempts == 0 && row->released_from == 0) {
        route_ask(p, topic);
        outcome_fail(p, row, SCOPE_KEY, "UNKNOWN_PARTITION",
                     "topic %s has %d partitions, so far as is known: there is no partition %d", topic->name,
                     topic->partitions, row->partition);
    } else if (is_sure(p, row)) {
        outcome_reject(p, row, "UNKNOWN_PARTITION", "topic %s has %d partitions: there is no partition %d", topic->name,
                       topic->partitions, row->partition);
    }
}

static bool is_held(const struct topic *topic, int32_t partition) {
    for (const struct hold *hold = topic->partition_holds; hold != NULL; hold = hold->next)
        if (hold->partition == partition)
            return true;
    return false;
}

/* Any will do, so one that is held is passed over, unless all are. */
static int32_t keyless_partition(struct topic *topic) {
    int32_t partition = 0;
    for (int32_t i = 0; i < topic->partitions; i++) {
        partition = (int32_t)(topic->next_keyless / KEYLESS_RUN % (uint32_t)topic->partitions);
        if (!is_held(topic, partition))
            break;
        topic->next_keyless += KEYLESS_RUN - topic->next_keyless % KEYLESS_RUN;
    }
    topic->next_keyless++;
    return partition;
}

static void enter_lane(struct publisher *p, struct row *row) {
    struct topic *topic = row->topic;
    if (row->is_explicit) {
        if (row->partition >= topic->partitions) {
            refuse_partition(p, row);
            return;
        }
    } else if (row->key != NULL) {
        row->partition = partition_of_key(row->key, (size_t)row->key_size, topic->partitions);
    } else {
        row->partition = keyless_partition(topic);
    }
    struct lane *lane = &topic->lanes[row->partition];
    struct hold *hold = lane->is_overdue ? holds_check(&p->holds, row) : NULL;
    if (hold != NULL) {
        publish_hold(p, hold, row);
        return;
    }
    queue_push(row->batch->is_retry ? &lane->retried : &lane->waiting, row);
    publish_list(p, lane);
}

/* The hold of a partition whose group is overdue, or NULL: until its reports come, the lanes cannot be made anew. */
static struct hold *find_dead(const struct topic *topic) {
    for (struct hold *hold = topic->partition_holds; hold != NULL; hold = hold->next)
        if (hold->partition >= 0 && hold->partition < topic->partitions && topic->lanes[hold->partition].is_overdue)
            return hold;
    return NULL;
}

/* Another number of partitions was seen, and is taken over when the old one's rows are through. A dead partition keeps
 * them from that: meanwhile what can goes by the old number, and the rest waits behind it. True: the row waits. */
static bool waits_for_count(struct publisher *p, struct row *row) {
    const struct topic *topic = row->topic;
    if (topic->partitions_seen == topic->partitions)
        return false;
    struct hold *dead = find_dead(topic);
    if (dead == NULL)
        wait_in_backlog(p, row);
    else if (topic->partitions_seen < topic->partitions || (row->is_explicit && row->partition >= topic->partitions))
        publish_hold(p, dead, row);
    else
        return false;
    return true;
}

void route_row(struct publisher *p, struct row *row) {
    struct topic *topic = row->topic;
    if (row->is_skipped) {
        publish_close(row, ROW_SKIPPED);
        holds_resolve(&p->holds, row);
        return;
    }
    if (is_defective(p, row))
        return;
    if (row->available_us != 0) {
        publish_close(row, ROW_DELAYED);
        return;
    }
    if (row->is_unsure && p->options.on_unknown == PUBLISH_HOLD) {
        outcome_reject(p, row, "UNKNOWN_OUTCOME",
                       "it may have arrived: it was on its way and was not found in topic %s (on_unknown = hold)",
                       topic->name);
        return;
    }
    if (is_too_large(p, row))
        return;
    switch (topic->state) {
    case TOPIC_READY:
        if (topic->is_doubted)
            wait_in_backlog(p, row);
        else if (!waits_for_count(p, row) && !is_refused(p, row))
            enter_lane(p, row);
        return;
    case TOPIC_UNKNOWN:
        wait_in_backlog(p, row);
        expect(p, topic);
        return;
    case TOPIC_ABSENT:
        fail_absent(p, row);
        return;
    }
}

bool route_knows(struct publisher *p, struct topic *topic, int64_t stale_us) {
    bool known = topic->state == TOPIC_READY || (topic->state == TOPIC_ABSENT && topic->looked_up_us >= stale_us);
    if (topic->state == TOPIC_UNKNOWN)
        expect(p, topic);
    else if (!known)
        route_ask(p, topic);
    return known;
}

void route_backlog(struct publisher *p, struct topic *topic) {
    struct row_queue rows = topic->backlog;
    topic->backlog = (struct row_queue){0};
    struct row *row;
    while ((row = queue_pop(&rows)) != NULL)
        route_row(p, row);
}

/* Rows in the lanes proper: those of the backlog are counted in in_lanes too. */
static bool lanes_are_empty(const struct topic *topic) {
    return topic->in_lanes == topic->backlog.count;
}

/* The topic is gone. Rows that are in flight should come back with an error of their own; but librdkafka keeps those
 * that it was about to send again when the topic's partitions went, and only a new producer gives them up. */
static void note_vanished(struct publisher *p, struct topic *topic) {
    if (topic->vanished_us == 0)
        topic->vanished_us = topic->looked_up_us;
    else if (topic->looked_up_us - topic->vanished_us >= VANISHED_US)
        p->stuck = topic;
}

static void answer(struct publisher *p, struct topic *topic, int32_t count, int code,
                   const struct kafka_limits *limits) {
    if (count < 0) { /* nobody answered: ask again */
        route_ask(p, topic);
        return;
    }
    topic->looked_up_us = loop_now_us();
    topic->answered = p->lookups_begun; /* there is one at a time */
    if (count == 0) {
        log_event(LOG_DEBUG, "look-up refused", log_str("topic", topic->name), log_str("code", kafka_code_name(code)),
                  log_str("meaning", outcome_table_find(OUTCOME_METADATA, code)->sentence), LOG_END);
        topic->code = code;
        if (topic->state == TOPIC_READY && !lanes_are_empty(topic)) {
            note_vanished(p, topic);
            return;
        }
        topic->vanished_us = 0;
        topic->is_doubted = false;
        if (topic->state == TOPIC_READY && topic->partitions_seen != topic->partitions)
            p->changing--;
        topic->state = TOPIC_ABSENT;
        kafka_topic_close(topic->handle); /* a topic created again later is another topic */
        topic->handle = NULL;
    } else {
        topic->is_doubted = false;
        topic->max_message_bytes = limits->max_message_bytes;
        topic->is_compacted = limits->is_compacted;
        if (topic->state == TOPIC_READY && count < topic->partitions && !lanes_are_empty(topic))
            note_vanished(p, topic); /* no topic shrinks: it is another one, made within the time between two looks */
        else
            topic->vanished_us = 0;
        if (topic->state == TOPIC_ABSENT)
            p->topics_cleared++;
        if (topic->handle == NULL)
            topic->handle = kafka_topic_open(p->kafka, topic->name);
        if (topic->state == TOPIC_READY) {
            if (topic->partitions_seen == topic->partitions && count != topic->partitions)
                p->changing++;
            else if (topic->partitions_seen != topic->partitions && count == topic->partitions)
                p->changing--;
            topic->partitions_seen = count;
            if (count == topic->partitions || topic->partition_holds != NULL)
                route_backlog(p, topic);
            return; /* another count is taken over when the lanes are empty */
        }
        topic_set_partitions(topic, count, (size_t)kafka_group_max_messages(p->kafka));
    }
    route_backlog(p, topic);
}

static void looked_up(struct kafka_lookup *lookup) {
    struct publisher *p = lookup->context;
    if (p != NULL) {
        bool has_answered = true;
        p->lookup = NULL;
        p->lookups++;
        p->lookup_after_us = 0;
        for (size_t i = 0; i < lookup->count; i++)
            has_answered = has_answered && lookup->counts[i] >= 0;
        if (!has_answered)
            p->lookup_after_us = loop_now_us() + RETRY_LOOKUP_US;
        /* An answer about all may be too much to come in time; what is asked for one by one goes on meanwhile. */
        p->asks_alone = !has_answered && lookup->is_together;
        overdue_note_answer(&p->overdue, lookup->reached, loop_now_us());
        for (size_t i = 0; i < lookup->count; i++) {
            struct topic *topic = topics_get(&p->topics, lookup->names[i], strlen(lookup->names[i]));
            answer(p, topic, lookup->counts[i], lookup->codes[i], &lookup->limits[i]);
            overdue_note_leaders(&p->overdue, topic, lookup->counts[i], lookup->has_leader[i]);
        }
    }
    kafka_lookup_free(lookup);
}

size_t route_waiting(const struct publisher *p) {
    size_t rows = 0;
    if (p->changing == 0)
        return 0;
    for (struct topic *t = topics_next(&p->topics, NULL); t != NULL; t = topics_next(&p->topics, t))
        if (t->state == TOPIC_READY && t->partitions_seen != t->partitions && !lanes_are_empty(t))
            rows += t->backlog.count;
    return rows;
}

/* Topics whose partition count changed take the new one over as soon as their lanes are empty. */
static void change_partitions(struct publisher *p) {
    for (struct topic *t = topics_next(&p->topics, NULL); t != NULL; t = topics_next(&p->topics, t)) {
        if (t->state != TOPIC_READY || t->partitions_seen == t->partitions || !lanes_are_empty(t))
            continue;
        log_event(LOG_INFO, "the number of partitions changed", log_str("topic", t->name),
                  log_int("from", t->partitions), log_int("to", t->partitions_seen), LOG_END);
        topic_set_partitions(t, t->partitions_seen, (size_t)kafka_group_max_messages(p->kafka));
        p->changing--;
        route_backlog(p, t);
    }
}

/* Known topics are counted again from time to time; absent ones that hold or keep rows are probed more often. */
static void ask_again(struct publisher *p, int64_t now) {
    if (now < p->ask_again_us)
        return;
    p->ask_again_us = now + p->options.absent_probe_ms * 1000;
    int64_t stale = now - p->options.metadata_refresh_ms * 1000;
    for (struct topic *t = topics_next(&p->topics, NULL); t != NULL; t = topics_next(&p->topics, t))
        if ((t->state == TOPIC_READY && (t->looked_up_us < stale || t->vanished_us != 0)) ||
            (t->state == TOPIC_ABSENT && t->hold != NULL) || t->awaited > 0)
            route_ask(p, t);
}

void route_look_up(struct publisher *p) {
    int64_t now = loop_now_us();
    if (p->changing > 0)
        change_partitions(p);
    if (p->lookup != NULL)
        return;
    ask_again(p, now);
    if (p->wanted == 0 || now < p->lookup_after_us)
        return;
    size_t count = p->wanted < LOOKUP_MOST ? p->wanted : LOOKUP_MOST;
    bool is_together = !p->asks_alone && count >= TOGETHER_LEAST && p->topics.count / TOGETHER_MOST <= count;
    if (!is_together && count > ALONE_MOST)
        count = ALONE_MOST;
    struct kafka_lookup *l = kafka_lookup_new(p->kafka, count, p->options.lookup_timeout_ms, looked_up, p);
    l->is_together = is_together;
    size_t taken = 0;
    for (struct topic *t = topics_next(&p->topics, NULL); t != NULL && taken < count; t = topics_next(&p->topics, t)) {
        if (!t->asked)
            continue;
        l->is_new[taken] = t->handle == NULL;
        l->names[taken] = strdup(t->name);
        if (l->names[taken++] == NULL)
            abort();
        t->asked = false;
        t->look_up = p->lookups_begun + 1;
        p->wanted--;
    }
    p->lookup = l;
    p->lookups_begun++;
    kafka_lookup_submit(l, p->worker);
}

int64_t route_wake_us(const struct publisher *p) {
    if (p->lookup != NULL)
        return INT64_MAX;
    if (p->wanted > 0)
        return p->lookup_after_us;
    return p->topics.count > 0 ? p->ask_again_us : INT64_MAX;
}
