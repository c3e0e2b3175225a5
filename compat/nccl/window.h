/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows. NCCL registers one by a call of all ranks, also in a group, where a
 * thread makes that call for several of its ranks; and each rank ends it alone.
 *
 * On a rank with a GPU the memory is also a registered buffer, since programs
 * register windows to make their collectives fast. It is only that, and nobody
 * puts into it, where a rank has a GPU and staging is never.
 */
#ifndef DICOMM_COMPAT_NCCL_WINDOW_H
#define DICOMM_COMPAT_NCCL_WINDOW_H

#include "compat/nccl/handle.h"

/* Of a communicator, until it is deregistered or the communicator ends */
struct ncclWindow_vidmem {
	struct ncclComm *comm;
	void *buff;
	size_t size;
	int flags;
	ncclWindow_t *out;   /* where the program wants it, until it is there */
	dicomm_window_t win; /* NULL: nobody puts into it */
	void *handle;        /* then: of the buffer */
	struct ncclWindow_vidmem *next;
};

/* Registers all of these at the same time, and hands them out. Frees those that
 * fail. The caller has entered their communicators. */
ncclResult_t nccl_windows_register(struct ncclWindow_vidmem **all, size_t n);
/* The library's window, for a put. NULL: there is none, for *why; says so. */
dicomm_window_t nccl_window_find(const char *f, const struct ncclComm *comm,
				 const void *win, ncclResult_t *why);
/* Before the library ends the communicator, and its windows with it. */
void nccl_windows_forget(struct ncclComm *comm);

#endif
