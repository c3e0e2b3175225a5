/* SPDX-License-Identifier: BSD-3-Clause */
#include "transports/defaults.h"

#include <sched.h>
#include <stdio.h>

dicomm_result_t defaults_hold(struct tp_device *dev, const void *addr,
			      uint64_t len, bool written, struct tp_hold **out)
{
	(void)dev;
	(void)addr;
	(void)len;
	(void)written;
	*out = NULL;
	return DICOMM_SUCCESS;
}

dicomm_result_t defaults_hold_device(struct tp_device *dev,
				     const struct tp_region *region,
				     struct tp_hold **out, char *how,
				     size_t len)
{
	(void)dev;
	(void)region;
	(void)out;
	snprintf(how, len, "%s", "");
	return DICOMM_ERR_UNSUPPORTED;
}

bool defaults_takes(unsigned n, const struct tp_region *region,
		    const struct tp_place *place, struct tp_taker *out)
{
	(void)n;
	(void)place;
	(void)region;
	(void)out;
	return false;
}

void defaults_drop(struct tp_device *dev, struct tp_hold *hold)
{
	(void)dev;
	(void)hold;
}

void defaults_rest(struct tp_device *dev, unsigned us)
{
	(void)dev;
	(void)us;
	sched_yield();
}
