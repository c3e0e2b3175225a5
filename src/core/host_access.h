/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rejects GPU memory that is passed to a rank that computes on the host.
 *
 * Only a process that has loaded a GPU runtime can have such memory. This is
 * checked when a communicator is made, and at each new call with memory that
 * was not checked before. The check asks the kernel whether the host can read
 * the memory. So managed memory, registered memory and memory of a device that
 * shares the host's memory are accepted, and the check starts no GPU runtime.
 */
#ifndef DICOMM_CORE_HOST_ACCESS_H
#define DICOMM_CORE_HOST_ACCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "dicomm.h"

struct dicomm_comm;

/* True once a GPU runtime has been loaded; never reset. */
extern _Atomic bool host_access_wanted;

/* Returns true if the pages of these buffers are known to be host memory. */
bool host_access_knows(const void *send, size_t sent, const void *recv,
		       size_t received);

/* For a repeated call: returns true if there is nothing to check. */
static inline bool host_access_quick(const void *send, size_t sent,
				     const void *recv, size_t received)
{
	return __builtin_expect(!atomic_load_explicit(&host_access_wanted,
						      memory_order_relaxed),
				1) ||
	       host_access_knows(send, sent, recv, received);
}

/* Checks whether a GPU runtime has been loaded. */
void host_access_look(void);
/* Returns DICOMM_ERR_INVALID_ARGUMENT, and logs the argument, if `at` is device
 * memory that the host cannot access. f is the public function, `name` the name
 * of its argument. */
dicomm_result_t host_access_check(const struct dicomm_comm *comm, const char *f,
				  const char *name, const void *at);

#endif
