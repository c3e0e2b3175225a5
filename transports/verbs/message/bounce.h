/* SPDX-License-Identifier: BSD-3-Clause */
/* Bounce buffers. A message that is too long to go inline is copied into one
 * and sent from there. */
#ifndef DICOMM_TRANSPORTS_VERBS_MESSAGE_BOUNCE_H
#define DICOMM_TRANSPORTS_VERBS_MESSAGE_BOUNCE_H

#include <stdint.h>

#include "dicomm.h"
#include "transports/verbs/channel/device.h"

/* Create them, with the first channel on which this rank sends. */
dicomm_result_t verbs_pool_open(struct tp_device *dev);
void verbs_pool_close(struct tp_device *dev);

static inline void verbs_pool_give(struct verbs_pool *pool, uint32_t buffer)
{
	pool->user[buffer] = NULL;
	pool->spare[pool->nspare++] = (uint16_t)buffer;
}

#endif
