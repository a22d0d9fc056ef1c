/* test_partition.c: murmur2 against the vectors of Kafka's own UtilsTest, at every alignment and tail length. */
#include <criterion/criterion.h>
#include <string.h>

#include "denpyo/partition.h"

static const struct {
    const char *key;
    int32_t hash; /* as Java prints it: signed */
} vectors[] = {
    {"21", -973932308},
    {"foobar", -790332482},
    {"a-little-bit-long-string", -985981536},
    {"a-little-bit-longer-string", -1486304829},
    {"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971},
    {"abc", 479470107},
    {"", 275646681},
    {"\xe4\xbc\x9d\xe7\xa5\xa8", 2017283885},
};

Test(partition, murmur2_equals_the_java_vectors) {
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const char *key = vectors[i].key;
        cr_expect_eq((int32_t)partition_murmur2(key, strlen(key)), vectors[i].hash, "key \"%s\": %d", key,
                     (int32_t)partition_murmur2(key, strlen(key)));
    }
}

Test(partition, alignment_does_not_matter) {
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        for (size_t shift = 0; shift < 8; shift++) {
            char buffer[64];
            size_t size = strlen(vectors[i].key);
            memcpy(buffer + shift, vectors[i].key, size);
            cr_expect_eq((int32_t)partition_murmur2(buffer + shift, size), vectors[i].hash);
        }
    }
}

Test(partition, an_empty_key_needs_no_memory) {
    cr_expect_eq(partition_murmur2(NULL, 0), partition_murmur2("", 0));
}

/* "21" hashes to a negative number in Java: the sign bit is cleared, not negated. */
Test(partition, a_negative_hash_loses_its_sign_bit) {
    cr_expect_eq(partition_of_key("21", 2, 8), (int32_t)((uint32_t)(-973932308 & 0x7fffffff) % 8));
    cr_expect_eq(partition_of_key("21", 2, INT32_MAX), (-973932308 & 0x7fffffff) % INT32_MAX);
    cr_expect_eq(partition_of_key("21", 2, 1), 0);
}
