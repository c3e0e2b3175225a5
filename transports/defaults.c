/* SPDX-License-Identifier: BSD-3-Clause */
#include "transports/defaults.h"

#include <stdio.h>

dicomm_result_t defaults_mem_reg(struct tp_device *dev, const void *addr,
				 uint64_t len, bool written,
				 struct tp_mem **out)
{
	(void)dev;
	(void)addr;
	(void)len;
	(void)written;
	*out = NULL;
	return DICOMM_SUCCESS;
}

dicomm_result_t defaults_mem_reg_device(struct tp_device *dev,
					const struct tp_region *region,
					struct tp_mem **out, char *how,
					size_t len)
{
	(void)dev;
	(void)region;
	(void)out;
	snprintf(how, len, "%s", "");
	return DICOMM_ERR_UNSUPPORTED;
}

bool defaults_mem_support(unsigned n, const struct tp_region *region,
			  const struct tp_place *place,
			  struct tp_mem_support *out)
{
	(void)n;
	(void)place;
	(void)region;
	(void)out;
	return false;
}

void defaults_mem_dereg(struct tp_device *dev, struct tp_mem *mem)
{
	(void)dev;
	(void)mem;
}
