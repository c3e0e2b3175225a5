/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory handles: memory that is registered with every NIC of the rank. */
#include "transports/verbs/message/memory.h"

#include <stdio.h>
#include <stdlib.h>

#include "src/accel/accel.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/loopback.h"
#include "transports/verbs/channel/rail.h"
#include "transports/verbs/nic/device_memory.h"
#include "transports/verbs/nic/registration.h"

static void mems_lock(struct tp_device *dev)
{
	while (atomic_flag_test_and_set_explicit(&dev->mems_busy,
						 memory_order_acquire))
		cpu_relax();
}

static void mems_unlock(struct tp_device *dev)
{
	atomic_flag_clear_explicit(&dev->mems_busy, memory_order_release);
}

static void add_mem(struct tp_device *dev, struct tp_mem *mem)
{
	mems_lock(dev);
	mem->next = dev->mems;
	dev->mems = mem;
	mems_unlock(dev);
}

static void free_mem(struct tp_device *dev, struct tp_mem *mem)
{
	for (uint32_t i = 0; i < dev->rails; i++)
		if (mem->mr[i])
			verbs_mr_put(dev->rail[i].nic, mem->mr[i]);
	free(mem);
}

dicomm_result_t verbs_mem_reg(struct tp_device *dev, const void *addr,
			      uint64_t len, bool written, struct tp_mem **out)
{
	struct tp_mem *mem = calloc(1, sizeof(*mem));
	dicomm_result_t status = DICOMM_SUCCESS;

	if (!mem)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	for (uint32_t i = 0; i < dev->rails && status == DICOMM_SUCCESS; i++)
		if (!verbs_rail_is_removed(dev, &dev->rail[i]))
			status = verbs_mr_get(dev->rail[i].nic, addr, len,
					      written, &mem->mr[i]);
	if (status != DICOMM_SUCCESS) {
		free_mem(dev, mem);
		return status;
	}
	add_mem(dev, mem);
	*out = mem;
	return DICOMM_SUCCESS;
}

/* Register with every NIC, since a message may go by any of them. */
static dicomm_result_t mem_reg_device(struct tp_device *dev,
				      const struct tp_region *region,
				      struct tp_mem *mem, char *how, size_t len)
{
	for (uint32_t i = 0; i < dev->rails; i++) {
		struct verbs_rail *rail = &dev->rail[i];

		if (verbs_rail_is_removed(dev, rail))
			continue;
		TRY(verbs_mr_get_device(rail->nic, region, &mem->mr[i], how,
					len));
		if (!mem->flushed ||
		    verbs_loopback_open(dev, rail) == DICOMM_SUCCESS)
			continue;
		snprintf(how, len, "no way to flush: %s", log_last_error());
		return DICOMM_ERR_UNSUPPORTED;
	}
	return DICOMM_SUCCESS;
}

dicomm_result_t verbs_mem_reg_device(struct tp_device *dev,
				     const struct tp_region *region,
				     struct tp_mem **out, char *how, size_t len)
{
	bool flushed = verbs_needs_flush(region);
	struct tp_mem *mem = calloc(1, sizeof(*mem));
	dicomm_result_t status;

	if (!mem)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	mem->flushed = flushed;
	status = mem_reg_device(dev, region, mem, how, len);
	if (status != DICOMM_SUCCESS) {
		free_mem(dev, mem);
		return status;
	}
	add_mem(dev, mem);
	*out = mem;
	return DICOMM_SUCCESS;
}

void verbs_mem_dereg(struct tp_device *dev, struct tp_mem *mem)
{
	struct tp_mem **at = &dev->mems;

	mems_lock(dev);
	while (*at != mem)
		at = &(*at)->next;
	*at = mem->next;
	mems_unlock(dev);
	free_mem(dev, mem);
}

/* Returns true if the registrations on all NICs cover that range. A
 * registration may cover more than was asked for, and not the same on all
 * NICs. */
static bool covers(const struct tp_device *dev, const struct tp_mem *mem,
		   uintptr_t base, uint64_t len, bool written)
{
	for (uint32_t i = 0; i < dev->rails; i++) {
		const struct verbs_mr *m = mem->mr[i];

		if (m && (base < m->base || base - m->base > m->len ||
			  len > m->len - (base - m->base) ||
			  (written && !m->written)))
			return false;
	}
	return true;
}

bool verbs_mem_keys(struct tp_device *dev, const void *addr, uint64_t len,
		    bool written, struct verbs_keys *keys)
{
	const struct tp_mem *mem;

	mems_lock(dev);
	for (mem = dev->mems; mem; mem = mem->next)
		if (covers(dev, mem, (uintptr_t)addr, len, written))
			break;
	if (mem)
		keys->flushed = mem->flushed;
	for (uint32_t i = 0; mem && i < dev->rails; i++) {
		const struct verbs_mr *m = mem->mr[i];

		keys->local[i] = m ? m->mr->lkey : 0;
		keys->remote[i] = m ? m->mr->rkey : 0;
	}
	mems_unlock(dev);
	return mem;
}
