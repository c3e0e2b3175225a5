/* SPDX-License-Identifier: BSD-3-Clause */
#include "transports/common.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>

#include "src/base/log.h"

dicomm_result_t common_check_config(const char *wire,
				    const struct tp_config *config)
{
	bool is_rank = config->rank >= 0 && config->rank < config->ranks;
	bool is_power = config->slots && !(config->slots & (config->slots - 1));

	if (is_rank && is_power && config->slot_bytes &&
	    config->slot_bytes % 4096 == 0)
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
		    "%s: rank %d of %d, %" PRIu32 " slots of %" PRIu32
		    " bytes: slots must be a power of two, their bytes a "
		    "multiple of 4096",
		    wire, config->rank, config->ranks, config->slots,
		    config->slot_bytes);
}

dicomm_result_t common_check_peer(const char *wire,
				  const struct tp_config *config,
				  uint32_t slot_bytes, int rank,
				  const struct common_terms *theirs)
{
	if ((uint32_t)rank != theirs->rank ||
	    (uint32_t)config->ranks != theirs->ranks)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s: rank %d of %d: the address is that of rank "
			    "%" PRIu32 " of %" PRIu32,
			    wire, rank, config->ranks, theirs->rank,
			    theirs->ranks);
	if (config->slots != theirs->slots || slot_bytes != theirs->slot_bytes)
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "%s: rank %d has %" PRIu32 " slots of %" PRIu32
			    " bytes, rank %d has %" PRIu32 " of %" PRIu32,
			    wire, config->rank, config->slots, slot_bytes, rank,
			    theirs->slots, theirs->slot_bytes);
	return DICOMM_SUCCESS;
}

dicomm_result_t common_hold(struct tp_device *dev, const void *addr,
			    uint64_t len, bool written, struct tp_hold **out)
{
	(void)dev;
	(void)addr;
	(void)len;
	(void)written;
	*out = NULL;
	return DICOMM_SUCCESS;
}

dicomm_result_t common_hold_device(struct tp_device *dev,
				   const struct tp_region *region,
				   struct tp_hold **out, char *how, size_t len)
{
	(void)dev;
	(void)region;
	(void)out;
	snprintf(how, len, "%s", "");
	return DICOMM_ERR_UNSUPPORTED;
}

bool common_takes(unsigned n, const struct tp_region *region,
		  const struct tp_place *place, struct tp_taker *out)
{
	(void)n;
	(void)place;
	(void)region;
	(void)out;
	return false;
}

void common_drop(struct tp_device *dev, struct tp_hold *hold)
{
	(void)dev;
	(void)hold;
}

void common_rest(struct tp_device *dev, unsigned us)
{
	(void)dev;
	(void)us;
	sched_yield();
}
