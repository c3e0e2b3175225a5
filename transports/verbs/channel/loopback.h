/* SPDX-License-Identifier: BSD-3-Clause */
/* Flushes: make sure that data which a NIC has written to a device is there. */
#ifndef DICOMM_TRANSPORTS_VERBS_CHANNEL_LOOPBACK_H
#define DICOMM_TRANSPORTS_VERBS_CHANNEL_LOOPBACK_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"
#include "transports/verbs/channel/channel.h"

/* Connect the NIC to itself, unless it is. */
dicomm_result_t verbs_loopback_open(struct tp_device *dev,
				    struct verbs_rail *rail);
void verbs_loopback_close(struct verbs_rail *rail);
/* Flush what a read has brought, by the NIC that did the read. Returns an error
 * number. */
int verbs_loopback_flush(const struct verbs_channel *channel, uint32_t slot);
/* A flush failed. Later ones fail, too, until verbs_loopback_repair() has
 * connected the NIC again. */
void verbs_loopback_failed(struct tp_device *dev, struct verbs_rail *rail);
/* For failover.c, with verbs_lock() held. True: it has to be called again. */
bool verbs_loopback_repair(struct tp_device *dev, struct verbs_rail *rail);
/* Is that the completion of a flush? */
static inline bool verbs_is_flush(const struct verbs_rail *rail,
				  const struct ibv_wc *wc)
{
	return rail->loopback && rail->loopback->qp[0].qpn == wc->qp_num;
}

/* The read that was flushed; NULL: its channel is closed, or it was posted
 * again. */
struct verbs_read *verbs_loopback_read(struct tp_device *dev,
				       const struct ibv_wc *wc,
				       struct verbs_channel **channel);

#endif
