/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations that are the same for several transports, because they have
 * nothing to do there. */
#ifndef DICOMM_TRANSPORTS_DEFAULTS_H
#define DICOMM_TRANSPORTS_DEFAULTS_H

#include "transports/transport.h"

/* mem_reg() and mem_dereg() of a transport that reaches all host memory. */
dicomm_result_t defaults_mem_reg(struct tp_device *dev, const void *addr,
				 uint64_t len, bool written,
				 struct tp_mem **out);
void defaults_mem_dereg(struct tp_device *dev, struct tp_mem *mem);

/* mem_reg_device() and mem_support() of a transport that reaches no device. */
dicomm_result_t defaults_mem_reg_device(struct tp_device *dev,
					const struct tp_region *region,
					struct tp_mem **out, char *how,
					size_t len);
bool defaults_mem_support(unsigned n, const struct tp_region *region,
			  const struct tp_place *place,
			  struct tp_mem_support *out);

#endif
