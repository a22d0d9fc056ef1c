/* cli_message.c: tells message ids and numbers from words that cannot name a message. */
#include "denpyo/cli_message.h"

#include <ctype.h>
#include <string.h>

bool cli_message_is_number(const char *word) {
    return *word && strlen(word) <= 18 && strspn(word, "0123456789") == strlen(word);
}

/* 8-4-4-4-12 hexadecimal digits in either case, with or without the hyphens. */
static bool is_uuid(const char *word) {
    size_t digits = 0;
    for (; *word; word++)
        if (isxdigit((unsigned char)*word))
            digits++;
        else if (*word != '-' || (digits != 8 && digits != 12 && digits != 16 && digits != 20))
            return false;
    return digits == 32;
}

bool cli_message_check(const char *command, const char *word, struct fault *f) {
    if (word && (cli_message_is_number(word) || is_uuid(word)))
        return true;
    return fault_set(f, FAULT_USAGE, "MESSAGE_ID",
                     "%s takes a message id, like 0198abcd-ef00-7fff-8009-9aa910325476, or the number in column "
                     "id%s%s%s",
                     command, word ? ", not \"" : "", word ? word : "", word ? "\"" : "");
}

void cli_message_missing(const char *word, struct fault *f) {
    fault_set(
        f, FAULT_REJECT, "NO_MESSAGE",
        "there is no message %s in this outbox: its transaction has not committed (or was rolled back), or the id "
        "is wrong",
        word);
}
