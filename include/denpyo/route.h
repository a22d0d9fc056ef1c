/* route.h: which lane a row takes, and what has to be known of its topic first. */
#ifndef DENPYO_ROUTE_H
#define DENPYO_ROUTE_H

#include "denpyo/publish.h"

/* Puts an OPEN row into its lane or its topic's backlog, or closes it when it cannot go. */
void route_row(struct publisher *p, struct row *row);

/* The topic is to be looked up soon. */
void route_ask(struct publisher *p, struct topic *topic);

/* Starts the look-up of partition counts that is due, if none is under way. */
void route_look_up(struct publisher *p);

/* Rows that wait until those in their topic's lanes are closed, since its partition count is to change. */
size_t route_waiting(const struct publisher *p);

/* Routes the topic's rows that waited to be routed. */
void route_backlog(struct publisher *p, struct topic *topic);

/* When route_look_up wants to be called although nothing happened (loop_now_us time). */
int64_t route_wake_us(const struct publisher *p);

/*
 * Whether the topic's partitions are known (or known to be none). If not, a look-up is asked for. An answer "absent"
 * from before stale_us counts as unknown.
 */
bool route_knows(struct publisher *p, struct topic *topic, int64_t stale_us);

#endif
