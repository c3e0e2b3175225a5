/* SPDX-License-Identifier: BSD-3-Clause */
/* Bounce buffers, registered with every NIC of the rank. */
#include "transports/verbs/message/bounce.h"

#include <stdlib.h>

#include "src/base/log.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/rail.h"
#include "transports/verbs/nic/registration.h"

/* Number of bounce buffers, and so of messages that can be sent from one at
 * a time. */
#define POOL_COUNT 32

dicomm_result_t verbs_pool_open(struct tp_device *dev)
{
	struct verbs_pool *p = &dev->pool;
	dicomm_result_t status;
	size_t bytes;
	bool good;

	if (p->count)
		return DICOMM_SUCCESS;
	p->bytes = dev->stride;
	bytes = (size_t)POOL_COUNT * p->bytes;
	p->memory = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
	p->spare = calloc(POOL_COUNT, sizeof(*p->spare));
	p->user = calloc(POOL_COUNT, sizeof(*p->user));
	good = p->memory && p->spare && p->user;
	for (uint32_t i = 0; i < dev->rails && good; i++) {
		if (verbs_rail_is_removed(dev, &dev->rail[i]))
			continue;
		dev->rail[i].pool_mr =
			ibv_reg_mr(dev->rail[i].nic->pd, p->memory, bytes,
				   IBV_ACCESS_LOCAL_WRITE);
		good = dev->rail[i].pool_mr;
	}
	if (!good) {
		status = FAIL(DICOMM_ERR_NO_MEMORY,
			      "verbs %s: %zu bytes to send from: %m%s",
			      dev->rail[0].nic->name, bytes,
			      verbs_memory_hint());
		verbs_pool_close(dev);
		return status;
	}
	p->count = POOL_COUNT;
	for (uint16_t i = 0; i < POOL_COUNT; i++)
		p->spare[p->nspare++] = i;
	return DICOMM_SUCCESS;
}

void verbs_pool_close(struct tp_device *dev)
{
	for (uint32_t i = 0; i < dev->rails; i++) {
		if (dev->rail[i].pool_mr)
			ibv_dereg_mr(dev->rail[i].pool_mr);
		dev->rail[i].pool_mr = NULL;
	}
	free(dev->pool.memory);
	free(dev->pool.spare);
	free((void *)dev->pool.user);
	dev->pool = (struct verbs_pool){.count = 0};
}
