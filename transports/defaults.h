/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations for a wire that has nothing of its own to do in them. */
#ifndef DICOMM_TRANSPORTS_DEFAULTS_H
#define DICOMM_TRANSPORTS_DEFAULTS_H

#include "transports/transport.h"

/* hold() and drop() of a wire that reaches all memory as it is. */
dicomm_result_t defaults_mem_reg(struct tp_device *dev, const void *addr,
				 uint64_t len, bool written,
				 struct tp_mem **out);
void defaults_mem_dereg(struct tp_device *dev, struct tp_mem *hold);

/* hold_device() and takes() of a wire that reaches no device. */
dicomm_result_t defaults_mem_reg_device(struct tp_device *dev,
					const struct tp_region *region,
					struct tp_mem **out, char *how,
					size_t len);
bool defaults_mem_support(unsigned n, const struct tp_region *region,
			  const struct tp_place *place,
			  struct tp_mem_support *out);

/* rest() of a wire that nobody could wake. */
void defaults_wait(struct tp_device *dev, unsigned us);

#endif
