/* conninfo.c (fuzz): passwords in a conninfo: what is shown of it, and what is said of a malformed one, never tells
 * them. */
#include <libpq-fe.h>

#include "denpyo/config.h"
#include "denpyo/config_mask.h"
#include "denpyo/session.h"
#include "fuzz.h"

static const char *value_of(const PQconninfoOption *options, const char *keyword) {
    for (; options->keyword; options++)
        if (strcmp(options->keyword, keyword) == 0)
            return options->val;
    return NULL;
}

/* libpq itself reads the masked text: the same in every word but the secrets, which are the mask. Where an @ may belong
 * to a password that is written wrong, more is masked. */
static void check_masked(PQconninfoOption *options, const char *conninfo, const char *masked) {
    const char *uri = strstr(conninfo, "://"), *at = strchr(conninfo, '@');
    if (uri && at && (strchr(at + 1, '@') || uri[3 + strcspn(uri + 3, "/@")] != '@'))
        return;
    PQconninfoOption *again = PQconninfoParse(masked, NULL);
    FUZZ_CHECK(again != NULL);
    for (PQconninfoOption *o = options; o->keyword; o++) {
        const char *value = value_of(again, o->keyword);
        bool secret = strcmp(o->keyword, "password") == 0 || strcmp(o->keyword, "sslpassword") == 0;
        if (secret && o->val && *o->val)
            FUZZ_CHECK(value && strcmp(value, CONFIG_MASK) == 0);
        else if (!secret)
            FUZZ_CHECK((o->val == NULL) == (value == NULL) && (value == NULL || strcmp(o->val, value) == 0));
    }
    PQconninfoFree(again);
}

#define SECRET "Zq7Zq7Zq7Zq7"

/* The input with a secret in place of each '\1'. */
static char *with_secret(const char *text) {
    char *out = malloc(strlen(text) * strlen(SECRET) + 1), *at = out;
    if (out == NULL)
        abort();
    for (; *text; text++)
        if (*text == 1)
            at += sprintf(at, "%s", SECRET);
        else
            *at++ = *text;
    *at = 0;
    return out;
}

/* A malformed one is never connected to. */
static void check_refusal(char *conninfo) {
    struct config c = {.postgres = conninfo, .schema = "s"};
    struct session *session;
    struct fault f = {0};
    FUZZ_CHECK(!session_open(&session, &c, &f));
    FUZZ_CHECK(f.class == FAULT_USAGE && *f.text);
    if (strstr(conninfo, "pass") != NULL || strchr(conninfo, '@') != NULL)
        FUZZ_CHECK(strstr(f.text, SECRET) == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = fuzz_text(data, size), *conninfo = with_secret(text);
    char *masked = config_mask_conninfo(conninfo);
    PQconninfoOption *options = PQconninfoParse(conninfo, NULL);
    if (options != NULL)
        check_masked(options, conninfo, masked);
    else if (*conninfo)
        check_refusal(conninfo);
    PQconninfoFree(options);
    free(masked);
    free(conninfo);
    free(text);
    return 0;
}
