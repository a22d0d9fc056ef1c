/* cli_sweep.h: every settled message of an outbox is compared with its receipt while a person waits. */
#ifndef DENPYO_CLI_SWEEP_H
#define DENPYO_CLI_SWEEP_H

#include <stdbool.h>

#include "denpyo/config.h"
#include "denpyo/session.h"
#include "denpyo/sweep.h"

/*
 * One round for the relay of the config's name, which need not run, and sends what is found when it does. *out: how
 * many messages were looked at, how many of them found and parked, and the lowest of these. Blocks; a transaction each
 * SWEEP_ROWS messages. Faults as session_query.
 */
bool cli_sweep_run(struct session *session, const struct config *config, struct sweep_answer *out, struct fault *f)
    __attribute__((warn_unused_result));

#endif
