/* cli_access.h: whether the database lets the user see every row, and write what a relay writes. */
#ifndef DENPYO_CLI_ACCESS_H
#define DENPYO_CLI_ACCESS_H

#include <stdbool.h>

#include "denpyo/config.h"
#include "denpyo/fault.h"

struct session;

/*
 * Asks for missing privileges and for row-level security that hides rows. FAULT_FATAL with code "42501" when something
 * is missing: the text names the statements that mend it. *can_wait: no rows are hidden, and the relay may not lead, so
 * that it does nothing until it has its grant; who may lead must not begin. Blocks.
 */
bool cli_access_check(struct session *session, const struct config *config, bool *can_wait, struct fault *f)
    __attribute__((warn_unused_result));

#endif
