/* SPDX-License-Identifier: BSD-3-Clause */
/* A channel goes on without the queue pairs that have failed. */
#ifndef DICOMM_TRANSPORTS_VERBS_MESSAGE_FAILOVER_H
#define DICOMM_TRANSPORTS_VERBS_MESSAGE_FAILOVER_H

#include <stdbool.h>

struct tp_device;
struct verbs_channel;

/* Go on without the queue pairs that have failed. */
void verbs_failover_run(struct tp_device *dev);
/* Is there anything left of that to be done? */
bool verbs_failover_pending(const struct verbs_channel *channel);

#endif
