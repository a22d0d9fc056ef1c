/* cli_message.h: how show, retry and skip are told which message is meant: by its message id, or by its number. */
#ifndef DENPYO_CLI_MESSAGE_H
#define DENPYO_CLI_MESSAGE_H

#include <stdbool.h>

#include "denpyo/fault.h"

/* Whether the word is a message's number (column id). */
bool cli_message_is_number(const char *word);

/* Whether the word, or NULL, can name a message; if not, FAULT_USAGE "MESSAGE_ID" says what `command` takes. */
bool cli_message_check(const char *command, const char *word, struct fault *f) __attribute__((warn_unused_result));

/* Sets *f to FAULT_REJECT "NO_MESSAGE": nothing in the outbox has this name. */
void cli_message_missing(const char *word, struct fault *f);

#endif
