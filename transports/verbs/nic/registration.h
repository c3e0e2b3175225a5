/* SPDX-License-Identifier: BSD-3-Clause */
/* A cache of memory registrations of one NIC. Threads: any. */
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
	bool written; /* the NIC may write the memory */
	int refs;
	/* number of the allocation, never reused; 0: it has none */
	uint64_t id;
	/* The kind of device whose memory it is; NULL: host memory. */
	const struct accel *accel;
	char how[128]; /* how the NIC got access to it */
	struct ibv_mr *mr;
};

/* Returns text to append to errno's: a hint that the limit of locked memory may
 * be too low (queues of a NIC are locked, too), or "". */
const char *verbs_memory_hint(void);
/* Register host memory, or use a registration that exists. Host memory of
 * dicomm_mem_alloc stays registered until it is freed, other memory until the
 * last verbs_mr_put(). */
dicomm_result_t verbs_mr_get(struct verbs_nic *nic, const void *addr,
			     size_t len, bool written, struct verbs_mr **out);
/* The same for memory of a device, until the last verbs_mr_put(). Returns
 * ERR_UNSUPPORTED, without a log line, if the NIC cannot register it. `how`
 * becomes the way that was taken ("dma-buf", "peer memory"), or the reason why
 * there is none. */
dicomm_result_t verbs_mr_get_device(struct verbs_nic *nic,
				    const struct tp_region *region,
				    struct verbs_mr **out, char *how,
				    size_t len);
void verbs_mr_put(struct verbs_nic *nic, struct verbs_mr *mr);
void verbs_mr_free_all(struct verbs_nic *nic);

#endif
