/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups. A group of NCCL is nothing at all if one of its calls is refused, and
 * may end in a question how long it would take; so calls are kept here until
 * the end, and only then handed to the library, in a group of that.
 */
#ifndef DICOMM_COMPAT_NCCL_GROUP_H
#define DICOMM_COMPAT_NCCL_GROUP_H

#include "compat/nccl/call.h"
#include "compat/nccl/task.h"

/* Of all threads */
extern _Atomic int nccl_groups __attribute__((visibility("hidden")));

bool nccl_group_of_thread(void);

/* Has any thread one open? Mostly nobody has. */
static inline bool nccl_group_any(void)
{
	return __builtin_expect(
		atomic_load_explicit(&nccl_groups, memory_order_relaxed) != 0,
		0);
}

/* Has the calling thread one open? */
static inline bool nccl_group_open(void)
{
	return nccl_group_any() && nccl_group_of_thread();
}

/* Keeps a call of the calling thread's group; false: it has none open. */
bool nccl_group_call(const struct nccl_call *call, ncclResult_t *result);
/* Takes over what the task owns. */
ncclResult_t nccl_group_task(const struct nccl_task *task);
/* A window is registered at its end. Takes it over. */
ncclResult_t nccl_group_window(struct ncclWindow_vidmem *window);
/* A call in the group was refused: its end tells that. */
ncclResult_t nccl_group_fail(ncclResult_t result);
/* The result of a call that this layer refuses, in a group or not. */
static inline ncclResult_t nccl_refused(ncclResult_t result)
{
	return nccl_group_open() ? nccl_group_fail(result) : result;
}

#endif
