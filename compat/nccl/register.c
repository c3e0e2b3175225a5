/* SPDX-License-Identifier: BSD-3-Clause */
/* A window is registered: at once, or at the end of a group. */
#include <stdlib.h>

#include "compat/nccl/group.h"
#include "compat/nccl/window.h"

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size,
				    ncclWindow_t *win, int flags)
{
	struct ncclWindow_vidmem *w;
	ncclResult_t result;

	if (win)
		*win = NULL;
	if (!win)
		result = nccl_refuse(ncclInvalidArgument, "%s: win is NULL",
				     __func__);
	else if (flags & ~(NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING))
		result = nccl_refuse(ncclInvalidUsage,
				     "%s: flags 0x%x: windows for NCCL's "
				     "device interface (GIN, CFT) do not "
				     "exist here",
				     __func__, (unsigned)flags);
	else if (!nccl_enter(comm))
		result = nccl_handle_refuse(__func__, comm);
	else
		result = ncclSuccess;
	if (result != ncclSuccess)
		return nccl_refused(result);
	w = malloc(sizeof(*w));
	if (!w)
		result = nccl_refuse(ncclSystemError, "%s: out of memory",
				     __func__);
	else
		*w = (struct ncclWindow_vidmem){.comm = comm,
						.buff = buff,
						.size = size,
						.flags = flags,
						.out = win};
	if (w && !nccl_group_open())
		result = nccl_windows_register(&w, 1);
	nccl_leave(comm);
	if (!nccl_group_open())
		return result;
	return w ? nccl_group_window(w) : nccl_group_fail(result);
}
NCCL_ALIAS(ncclCommWindowRegister);
