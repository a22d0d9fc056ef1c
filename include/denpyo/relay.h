/* relay.h: the running relay: standby, leader, and the way out. */
#ifndef DENPYO_RELAY_H
#define DENPYO_RELAY_H

#include "denpyo/config.h"
#include "denpyo/fault.h"

/*
 * Runs until SIGTERM or SIGINT (true: everything acknowledged is recorded, the lease is given back) or until it cannot
 * go on (false, with the fault: wrong settings, no broker at the start). The schema must have been checked. Blocks for
 * as long as it runs; a second signal ends the process at once with exit code 128 + signal. brokers must be given.
 */
bool relay_run(const struct config *config, struct fault *f) __attribute__((warn_unused_result));

#endif
