/* SPDX-License-Identifier: BSD-3-Clause */
#include "transports/terms.h"

#include <inttypes.h>

#include "src/base/log.h"

dicomm_result_t terms_check_config(const char *wire,
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

dicomm_result_t terms_check_peer(const char *wire,
				 const struct tp_config *config,
				 uint32_t slot_bytes, int rank,
				 const struct terms *theirs)
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
