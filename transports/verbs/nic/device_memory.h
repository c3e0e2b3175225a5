/* SPDX-License-Identifier: BSD-3-Clause */
/* Register memory of a device with a NIC. */
#ifndef DICOMM_TRANSPORTS_VERBS_NIC_DEVICE_MEMORY_H
#define DICOMM_TRANSPORTS_VERBS_NIC_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

struct ibv_mr;
struct tp_region;
struct verbs_nic;

/* Must data that a NIC has written there be flushed before the device reads
 * it? */
bool verbs_needs_flush(const struct tp_region *region);
/* Try all ways; NULL: none works. `how` becomes the one that works, or why none
 * does. */
struct ibv_mr *verbs_reg_device_memory(const struct verbs_nic *nic,
				       const struct tp_region *region,
				       unsigned access, char *how, size_t len);

#endif
