/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that is given to a rank which computes on the host, and that the host
 * cannot touch: that of a GPU.
 *
 * Only a process that has loaded the runtime of a GPU can have any. That is
 * looked up when a communicator begins, and at calls that repeat none before
 * and come with memory that was not seen yet. Whether the host reads memory is
 * asked of the kernel: so what is managed, or registered, or of a device whose
 * memory is the host's, too, is taken, and no runtime is started for it.
 */
#ifndef DICOMM_CORE_HOST_ACCESS_H
#define DICOMM_CORE_HOST_ACCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "dicomm.h"

struct dicomm_comm;

/* Has a runtime of a GPU been loaded? Never unset. */
extern _Atomic bool host_access_wanted;

/* Are these pages of the host that were seen already? */
bool host_access_knows(const void *send, size_t sent, const void *recv,
		       size_t received);

/* Of a call that was made before: is there nothing to check? */
static inline bool host_access_quick(const void *send, size_t sent,
				     const void *recv, size_t received)
{
	return __builtin_expect(!atomic_load_explicit(&host_access_wanted,
						      memory_order_relaxed),
				1) ||
	       host_access_knows(send, sent, recv, received);
}

/* See whether one has been loaded. */
void host_access_look(void);
/* Refused by name, if the memory is of a device and the host cannot touch it.
 */
dicomm_result_t host_access_check(const struct dicomm_comm *comm, const char *f,
				  const char *name, const void *at);

#endif
