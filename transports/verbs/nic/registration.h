/* SPDX-License-Identifier: BSD-3-Clause */
/* Registrations of memory with a NIC. */
#ifndef DICOMM_TRANSPORTS_VERBS_NIC_REGISTRATION_H
#define DICOMM_TRANSPORTS_VERBS_NIC_REGISTRATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

struct accel;
struct ibv_mr;
struct tp_region;
struct verbs_nic;

struct verbs_mr {
	struct verbs_mr *next;
	uintptr_t base;
	size_t len;
	bool written; /* the NIC may write it */
	int refs;
	uint64_t id; /* of an allocation that no other has; or 0 */
	/* Of a device; NULL: of the host. */
	const struct accel *accel;
	char how[128]; /* the NIC got that */
	struct ibv_mr *mr;
};

/* To be said behind errno: why the kernel may have had no memory for a NIC,
 * which locks its queues, too; or "". */
const char *verbs_memory_hint(void);
/* Any thread. What an allocator of ours gave stays registered until it is
 * freed; other memory for as long as somebody refers to it. */
dicomm_result_t verbs_mr_get(struct verbs_nic *nic, const void *addr,
			     size_t len, bool written, struct verbs_mr **out);
/* Of a device, for as long as somebody refers to it. ERR_UNSUPPORTED, and
 * nothing logged: the NIC cannot have it. `how` as in hold_device(). */
dicomm_result_t verbs_mr_get_device(struct verbs_nic *nic,
				    const struct tp_region *region,
				    struct verbs_mr **out, char *how,
				    size_t len);
void verbs_mr_put(struct verbs_nic *nic, struct verbs_mr *mr);
void verbs_mr_free_all(struct verbs_nic *nic);

#endif
