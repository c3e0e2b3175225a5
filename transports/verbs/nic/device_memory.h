/* SPDX-License-Identifier: BSD-3-Clause */
/* How a NIC is given memory of a device. */
#ifndef DICOMM_TRANSPORTS_VERBS_NIC_DEVICE_MEMORY_H
#define DICOMM_TRANSPORTS_VERBS_NIC_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

struct ibv_mr;
struct tp_region;
struct verbs_nic;

/* Does memory of that device need a flush behind what a NIC has written? */
bool verbs_needs_flush(const struct tp_region *region);
/* In the best way that works; NULL: in none. `how` becomes which, or why. */
struct ibv_mr *verbs_reg_device_memory(const struct verbs_nic *nic,
				       const struct tp_region *region,
				       unsigned access, char *how, size_t len);

#endif
