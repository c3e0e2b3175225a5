/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that its user holds: all NICs of the rank may have it. */
#include "transports/verbs/hold.h"

#include <stdio.h>
#include <stdlib.h>

#include "src/accel/accel.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "transports/verbs/ladder.h"
#include "transports/verbs/lane.h"
#include "transports/verbs/memory.h"
#include "transports/verbs/mirror.h"
#include "transports/verbs/rail.h"
#include "transports/verbs/verbs.h"

static void holds_lock(struct tp_device *dev)
{
	while (atomic_flag_test_and_set_explicit(&dev->holding,
						 memory_order_acquire))
		cpu_relax();
}

static void holds_unlock(struct tp_device *dev)
{
	atomic_flag_clear_explicit(&dev->holding, memory_order_release);
}

static void add_hold(struct tp_device *dev, struct tp_hold *hold)
{
	holds_lock(dev);
	hold->next = dev->holds;
	dev->holds = hold;
	holds_unlock(dev);
}

static void let_go(struct tp_device *dev, struct tp_hold *hold)
{
	for (uint32_t i = 0; i < dev->rails; i++)
		if (hold->mr[i])
			verbs_mr_put(dev->rail[i].nic, hold->mr[i]);
	free(hold);
}

dicomm_result_t verbs_hold(struct tp_device *dev, const void *addr,
			   uint64_t len, bool written, struct tp_hold **out)
{
	struct tp_hold *hold = calloc(1, sizeof(*hold));
	dicomm_result_t status = DICOMM_SUCCESS;

	if (!hold)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	for (uint32_t i = 0; i < dev->rails && status == DICOMM_SUCCESS; i++)
		if (!verbs_rail_has_gone(dev, &dev->rail[i]))
			status = verbs_mr_get(dev->rail[i].nic, addr, len,
					      written, &hold->mr[i]);
	if (status != DICOMM_SUCCESS) {
		let_go(dev, hold);
		return status;
	}
	add_hold(dev, hold);
	*out = hold;
	return DICOMM_SUCCESS;
}

/* Each NIC must have it, for a message may go by any. */
static dicomm_result_t hold_device(struct tp_device *dev,
				   const struct tp_region *region,
				   struct tp_hold *hold, char *how, size_t len)
{
	for (uint32_t i = 0; i < dev->rails; i++) {
		struct verbs_rail *rail = &dev->rail[i];

		if (verbs_rail_has_gone(dev, rail))
			continue;
		TRY(verbs_mr_get_device(rail->nic, region, &hold->mr[i], how,
					len));
		if (!hold->flushed ||
		    verbs_mirror_open(dev, rail) == DICOMM_SUCCESS)
			continue;
		snprintf(how, len, "no way to flush: %s", log_last_error());
		return DICOMM_ERR_UNSUPPORTED;
	}
	return DICOMM_SUCCESS;
}

dicomm_result_t verbs_hold_device(struct tp_device *dev,
				  const struct tp_region *region,
				  struct tp_hold **out, char *how, size_t len)
{
	bool flushed = verbs_ladder_flushes(region);
	struct tp_hold *hold = calloc(1, sizeof(*hold));
	dicomm_result_t status;

	if (!hold)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	hold->flushed = flushed;
	status = hold_device(dev, region, hold, how, len);
	if (status != DICOMM_SUCCESS) {
		let_go(dev, hold);
		return status;
	}
	add_hold(dev, hold);
	*out = hold;
	return DICOMM_SUCCESS;
}

void verbs_drop(struct tp_device *dev, struct tp_hold *hold)
{
	struct tp_hold **at = &dev->holds;

	holds_lock(dev);
	while (*at != hold)
		at = &(*at)->next;
	*at = hold->next;
	holds_unlock(dev);
	let_go(dev, hold);
}

/* One NIC may know more of the memory than another. */
static bool covers(const struct tp_device *dev, const struct tp_hold *hold,
		   uintptr_t base, uint64_t len, bool written)
{
	for (uint32_t i = 0; i < dev->rails; i++) {
		const struct verbs_mr *m = hold->mr[i];

		if (m && (base < m->base || base - m->base > m->len ||
			  len > m->len - (base - m->base) ||
			  (written && !m->written)))
			return false;
	}
	return true;
}

bool verbs_held(struct tp_device *dev, const void *addr, uint64_t len,
		bool written, struct verbs_keys *keys)
{
	const struct tp_hold *hold;

	holds_lock(dev);
	for (hold = dev->holds; hold; hold = hold->next)
		if (covers(dev, hold, (uintptr_t)addr, len, written))
			break;
	if (hold)
		keys->flushed = hold->flushed;
	for (uint32_t i = 0; hold && i < dev->rails; i++) {
		const struct verbs_mr *m = hold->mr[i];

		keys->local[i] = m ? m->mr->lkey : 0;
		keys->remote[i] = m ? m->mr->rkey : 0;
	}
	holds_unlock(dev);
	return hold;
}
