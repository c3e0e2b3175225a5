/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of devices that UCX can send and receive. */
#ifndef DICOMM_TRANSPORTS_UCX_MEMORY_H
#define DICOMM_TRANSPORTS_UCX_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "transports/transport.h"
#include "transports/ucx/device.h"

/* As in struct transport. */
dicomm_result_t ucx_mem_reg_device(struct tp_device *dev,
				   const struct tp_region *region,
				   struct tp_mem **out, char *how, size_t len);
void ucx_mem_dereg(struct tp_device *dev, struct tp_mem *mem);
/* The type of registered memory; all other memory is the host's. Lock held. */
ucs_memory_type_t ucx_memory_type(const struct tp_device *dev, uintptr_t at,
				  uint64_t len);

#endif
