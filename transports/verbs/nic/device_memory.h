/* SPDX-License-Identifier: BSD-3-Clause */
/* Registers memory of a device with a NIC. */
#ifndef DICOMM_TRANSPORTS_VERBS_NIC_DEVICE_MEMORY_H
#define DICOMM_TRANSPORTS_VERBS_NIC_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

struct ibv_mr;
struct tp_region;
struct verbs_nic;

/* Returns true if data that a NIC has written there must be flushed before the
 * device reads it. */
bool verbs_needs_flush(const struct tp_region *region);
/* Register by the first way that works. Returns NULL if none does. `how`
 * becomes the name of the way, or the reason why none works. */
struct ibv_mr *verbs_reg_device_memory(const struct verbs_nic *nic,
				       const struct tp_region *region,
				       unsigned access, char *how, size_t len);

#endif
