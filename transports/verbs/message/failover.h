/* SPDX-License-Identifier: BSD-3-Clause */
/* Failover: a channel keeps working when one of its queue pairs has failed. */
#ifndef DICOMM_TRANSPORTS_VERBS_MESSAGE_FAILOVER_H
#define DICOMM_TRANSPORTS_VERBS_MESSAGE_FAILOVER_H

#include <stdbool.h>

struct tp_device;
struct verbs_channel;

/* Do the next steps for all channels. Polls call this while dev->failover
 * is set. */
void verbs_failover_run(struct tp_device *dev);
/* Returns true if failover of that channel is in progress. */
bool verbs_failover_pending(const struct verbs_channel *channel);

#endif
