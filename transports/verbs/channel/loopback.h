/* SPDX-License-Identifier: BSD-3-Clause */
/* Flushes: they make sure that data which a NIC has written to a device has
 * arrived in its memory. */
#ifndef DICOMM_TRANSPORTS_VERBS_CHANNEL_LOOPBACK_H
#define DICOMM_TRANSPORTS_VERBS_CHANNEL_LOOPBACK_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"
#include "transports/verbs/channel/channel.h"

/* Connect the NIC to itself, if it is not connected yet. */
dicomm_result_t verbs_loopback_open(struct tp_device *dev,
				    struct verbs_rail *rail);
void verbs_loopback_close(struct verbs_rail *rail);
/* Flush what the read of that slot has brought, by the NIC that did the read.
 * Returns an error number, or 0. */
int verbs_loopback_flush(const struct verbs_channel *channel, uint32_t slot);
/* A flush has failed. Later ones fail, too, until verbs_loopback_repair() has
 * connected the NIC again. */
void verbs_loopback_failed(struct tp_device *dev, struct verbs_rail *rail);
/* Connect the NIC to itself again, if a flush has failed. failover.c calls
 * this, with verbs_lock() held. Returns true if it has to be called again. */
bool verbs_loopback_repair(struct tp_device *dev, struct verbs_rail *rail);
/* Returns true if this is the completion of a flush. */
static inline bool verbs_is_flush(const struct verbs_rail *rail,
				  const struct ibv_wc *wc)
{
	return rail->loopback && rail->loopback->qp[0].qpn == wc->qp_num;
}

/* Returns the read that was flushed. NULL if its channel is closed, or if the
 * read was posted again since. */
struct verbs_read *verbs_loopback_read(struct tp_device *dev,
				       const struct ibv_wc *wc,
				       struct verbs_channel **channel);

#endif
