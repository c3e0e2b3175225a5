/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rejects GPU memory that is passed to a rank which computes on the host.
 *
 * Only a process that has loaded a GPU runtime can have such memory. This is
 * checked when a communicator begins, and at each new call with memory that was
 * not checked before. The kernel is asked whether the host can read the memory.
 * So managed memory, registered memory and memory of a device that shares the
 * host's are accepted, and no GPU runtime is started for the check.
 */
#ifndef DICOMM_CORE_HOST_ACCESS_H
#define DICOMM_CORE_HOST_ACCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "dicomm.h"

struct dicomm_comm;

/* Has a GPU runtime been loaded? Never reset. */
extern _Atomic bool host_access_wanted;

/* Were these host pages checked before? */
bool host_access_knows(const void *send, size_t sent, const void *recv,
		       size_t received);

/* For a repeated call: is there nothing to check? */
static inline bool host_access_quick(const void *send, size_t sent,
				     const void *recv, size_t received)
{
	return __builtin_expect(!atomic_load_explicit(&host_access_wanted,
						      memory_order_relaxed),
				1) ||
	       host_access_knows(send, sent, recv, received);
}

/* Look whether a GPU runtime has been loaded. */
void host_access_look(void);
/* ERR_INVALID_ARGUMENT, naming the argument, if this is device memory that the
 * host cannot access. */
dicomm_result_t host_access_check(const struct dicomm_comm *comm, const char *f,
				  const char *name, const void *at);

#endif
