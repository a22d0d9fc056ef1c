/* words.c (fuzz): short texts from outside: snapshots, message ids in records and on the command line, mistyped words.
 */
#include "../../src/kafka_tail.c"
#include "denpyo/cli_message.h"
#include "denpyo/envelope.h"
#include "denpyo/nearest.h"
#include "denpyo/window.h"
#include "fuzz.h"

static void check_snapshot(const char *text) {
    struct window_snapshot s = {0};
    struct fault f = {0};
    if (!window_snapshot_parse(&s, text, &f)) {
        FUZZ_CHECK(f.class == FAULT_FATAL && s.xip == NULL && s.xip_count == 0);
        return;
    }
    FUZZ_CHECK(s.xmin <= s.xmax && window_snapshot_sees(&s, s.xmin - 1) && !window_snapshot_sees(&s, s.xmax));
    for (size_t i = 0; i < s.xip_count; i++)
        FUZZ_CHECK(!window_snapshot_sees(&s, s.xip[i]) && (i == 0 || s.xip[i - 1] < s.xip[i]));
    window_snapshot_free(&s);
}

/* An id header that is taken is one that denpyo could have written. */
static void check_id(const char *text, size_t size) {
    unsigned char id[16];
    char again[ENVELOPE_ID_SIZE];
    if (!parse_id(text, size, id))
        return;
    envelope_id(id, again);
    FUZZ_CHECK(size == sizeof again && memcmp(again, text, size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const known[] = {"rows", "bytes", "relay", "a-rather-long-name-of-an-option"};
    char *text = fuzz_text(data, size);
    struct fault f = {0};
    check_snapshot(text);
    check_id(text, size);
    if (!cli_message_check("show", text, &f))
        FUZZ_CHECK(f.class == FAULT_USAGE && *f.text);
    const char *nearest = nearest_word(text, known, 4);
    FUZZ_CHECK(nearest == NULL || strlen(text) <= 64);
    free(text);
    return 0;
}
