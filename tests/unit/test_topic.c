/* test_topic.c: each name has one topic for life, however many there are, and fresh lanes for each partition count. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "denpyo/topic.h"

enum { MANY = 20000 };

static struct topic *get(struct topics *t, int number) {
    char name[20];
    int size = snprintf(name, sizeof name, "topic-%d", number);
    return topics_get(t, name, (size_t)size);
}

Test(topic, the_same_name_is_the_same_topic) {
    static struct topic *seen[MANY];
    struct topics t;
    topics_init(&t);
    for (int i = 0; i < MANY; i++) {
        seen[i] = get(&t, i);
        cr_assert(seen[i]->state == TOPIC_UNKNOWN && seen[i]->index == -1 && seen[i]->partitions == 0);
    }
    for (int i = MANY - 1; i >= 0; i--)
        cr_assert_eq(get(&t, i), seen[i]);
    cr_assert_eq(t.count, MANY);
    topics_free(&t);
}

Test(topic, a_name_is_its_bytes_not_a_prefix) {
    struct topics t;
    topics_init(&t);
    struct topic *longer = topics_get(&t, "orders.eu", 9), *shorter = topics_get(&t, "orders.eu", 6);
    cr_assert_neq(longer, shorter);
    cr_assert_str_eq(shorter->name, "orders");
    cr_assert_eq(topics_get(&t, "orders.eu", 9), longer);
    topics_free(&t);
}

Test(topic, walking_meets_each_once) {
    struct topics t;
    topics_init(&t);
    cr_assert_null(topics_next(&t, NULL));
    for (int i = 0; i < MANY; i++)
        get(&t, i);
    size_t met = 0;
    for (struct topic *topic = topics_next(&t, NULL); topic != NULL; topic = topics_next(&t, topic), met++)
        cr_assert_eq(topic->index++, -1);
    cr_assert_eq(met, MANY);
    topics_free(&t);
}

Test(topic, partitions_make_empty_lanes) {
    struct topics t;
    topics_init(&t);
    struct topic *topic = get(&t, 1);
    for (int32_t partitions = 1; partitions <= 300; partitions += 299) {
        topic_set_partitions(topic, partitions, 7);
        cr_assert(topic->state == TOPIC_READY && topic->partitions == partitions &&
                  topic->partitions_seen == partitions);
        for (int32_t i = 0; i < partitions; i++) {
            struct lane *lane = &topic->lanes[i];
            cr_assert(lane->topic == topic && lane->partition == i && lane->limit == 7 && lane->group_open == 0);
            cr_assert_null(topic_lane_next(lane));
        }
    }
    topics_free(&t);
}

Test(topic, a_name_that_kafka_has_no_topics_of_is_told) {
    static const char *const legal[] = {"a", "orders.v2_X-1", "...", "a.."};
    static const char *const illegal[] = {"", ".", "..", "a b", "a\nb", "a/b", "\xf0\x9f\x98\x80", "a\xff"};
    struct topics t;
    topics_init(&t);
    for (size_t i = 0; i < sizeof legal / sizeof *legal; i++)
        cr_expect(topics_get(&t, legal[i], strlen(legal[i]))->is_legal, "%s", legal[i]);
    for (size_t i = 0; i < sizeof illegal / sizeof *illegal; i++)
        cr_expect_not(topics_get(&t, illegal[i], strlen(illegal[i]))->is_legal, "%s", illegal[i]);
    char name[251];
    memset(name, 'n', sizeof name);
    cr_expect(topics_get(&t, name, 249)->is_legal);
    cr_expect_not(topics_get(&t, name, 250)->is_legal);
    cr_expect_not(topics_get(&t, "a\0b", 3)->is_legal);
    topics_free(&t);
}
