/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory: allocated, registered, and as windows. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compat/nccl/call.h"
#include "compat/nccl/device.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Allocations that are the driver's, for the library has no communicator there
 * yet; few, so that a list will do. */
static struct block {
	void *at;
	enum nccl_kind kind;
	struct block *next;
} * blocks;

/* By a communicator of the device, so that its transports know the memory. */
static bool from_communicator(const char *device, void **ptr, size_t size,
			      dicomm_result_t *status)
{
	const char *name;
	bool found = false;

	for (int i = 0; i < NCCL_HANDLES && !found; i++) {
		struct ncclComm *c = &nccl_handles[i];

		if (!c->pid)
			break; /* none of these was ever given out */
		if (!nccl_enter_shared(c, NCCL_IN(NCCL_LIVE)))
			continue;
		if (dicomm_comm_device(c->comm, &name) == DICOMM_SUCCESS &&
		    !strcmp(name, device)) {
			dicomm_result_t ready;

			found = dicomm_comm_get_async_error(c->comm, &ready) ==
					DICOMM_SUCCESS &&
				ready == DICOMM_SUCCESS;
			if (found)
				*status = dicomm_comm_mem_alloc(c->comm, ptr,
								size);
		}
		nccl_leave_shared(c);
	}
	return found;
}

static ncclResult_t from_driver(const struct nccl_device *device, void **ptr,
				size_t size)
{
	struct block *b = malloc(sizeof(*b));
	int error;

	if (!b)
		return nccl_refuse(ncclSystemError,
				   "ncclMemAlloc: out of memory");
	error = nccl_device_alloc(device->kind, ptr, size);
	if (error) {
		free(b);
		*ptr = NULL;
		return nccl_refuse(ncclUnhandledCudaError,
				   "ncclMemAlloc: %zu bytes on %s: the driver "
				   "gives error %d",
				   size, device->name, error);
	}
	b->at = *ptr;
	b->kind = device->kind;
	pthread_mutex_lock(&lock);
	b->next = blocks;
	blocks = b;
	pthread_mutex_unlock(&lock);
	return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
	struct nccl_device device;
	dicomm_result_t status;

	if (!ptr)
		return nccl_refuse(ncclInvalidArgument, "%s: ptr is NULL",
				   __func__);
	*ptr = NULL;
	if (!size)
		return ncclSuccess;
	nccl_device_current(&device);
	if (device.kind == NCCL_HOST || !device.name[0])
		return nccl_from(dicomm_mem_alloc(ptr, size));
	if (from_communicator(device.name, ptr, size, &status))
		return nccl_from(status);
	return from_driver(&device, ptr, size);
}
NCCL_ALIAS(ncclMemAlloc);

ncclResult_t ncclMemFree(void *ptr)
{
	struct block **at, *b;
	int error;

	if (!ptr)
		return ncclSuccess;
	pthread_mutex_lock(&lock);
	for (at = &blocks; (b = *at); at = &b->next)
		if (b->at == ptr)
			break;
	if (b)
		*at = b->next;
	pthread_mutex_unlock(&lock);
	if (!b)
		return nccl_from(dicomm_mem_free(ptr));
	error = nccl_device_free(b->kind, ptr);
	free(b);
	if (error)
		return nccl_refuse(ncclUnhandledCudaError,
				   "%s: %p: the driver gives error %d",
				   __func__, ptr, error);
	return ncclSuccess;
}
NCCL_ALIAS(ncclMemFree);

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size,
			      void **handle)
{
	dicomm_result_t status;

	if (!handle)
		return nccl_refuse(ncclInvalidArgument, "%s: handle is NULL",
				   __func__);
	*handle = NULL;
	if (!nccl_enter(comm))
		return nccl_handle_refuse(__func__, comm);
	status = dicomm_comm_register(comm->comm, buff, size, handle);
	nccl_leave(comm);
	return nccl_from(status);
}
NCCL_ALIAS(ncclCommRegister);

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
	dicomm_result_t status;

	if (!nccl_enter_any(comm, NCCL_THERE))
		return nccl_handle_refuse(__func__, comm);
	/* What could not be registered has that handle in NCCL. */
	status = handle ? dicomm_comm_deregister(comm->comm, handle)
			: DICOMM_SUCCESS;
	nccl_leave(comm);
	return nccl_from(status);
}
NCCL_ALIAS(ncclCommDeregister);

/* A window is a registered buffer; nobody else reaches into it. */
struct ncclWindow_vidmem {
	struct ncclComm *comm;
	void *buff, *handle;
	struct ncclWindow_vidmem *next;
};

static struct ncclWindow_vidmem *windows;

/* The library has forgotten what was registered, with the communicator. */
void nccl_window_forget(struct ncclComm *c)
{
	struct ncclWindow_vidmem **at = &windows, *w;

	pthread_mutex_lock(&lock);
	while ((w = *at)) {
		if (w->comm != c) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		free(w);
	}
	pthread_mutex_unlock(&lock);
}

/* Of any communicator where comm is NULL; taken out of the list if wanted. */
static struct ncclWindow_vidmem *
find_window(const void *win, const struct ncclComm *comm, bool take)
{
	struct ncclWindow_vidmem **at, *w;

	pthread_mutex_lock(&lock);
	for (at = &windows; (w = *at); at = &w->next)
		if (w == win && (!comm || w->comm == comm))
			break;
	if (w && take)
		*at = w->next;
	pthread_mutex_unlock(&lock);
	return w;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size,
				    ncclWindow_t *win, int flags)
{
	struct ncclWindow_vidmem *w;
	dicomm_result_t status;

	if (!win)
		return nccl_refuse(ncclInvalidArgument, "%s: win is NULL",
				   __func__);
	*win = NULL;
	if (flags & ~(NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING))
		return nccl_refuse(ncclInvalidUsage,
				   "%s: flags 0x%x: windows for NCCL's device "
				   "interface (GIN, CFT) do not exist here",
				   __func__, (unsigned)flags);
	if (!nccl_enter(comm))
		return nccl_handle_refuse(__func__, comm);
	w = malloc(sizeof(*w));
	if (!w) {
		nccl_leave(comm);
		return nccl_refuse(ncclSystemError, "%s: out of memory",
				   __func__);
	}
	status = dicomm_comm_register(comm->comm, buff, size, &w->handle);
	nccl_leave(comm);
	if (status != DICOMM_SUCCESS) {
		free(w);
		return nccl_failed(status);
	}
	w->comm = comm;
	w->buff = buff;
	pthread_mutex_lock(&lock);
	w->next = windows;
	windows = w;
	pthread_mutex_unlock(&lock);
	*win = w;
	return ncclSuccess;
}
NCCL_ALIAS(ncclCommWindowRegister);

static ncclResult_t no_window(const char *f, const void *win)
{
	return nccl_refuse(ncclInvalidArgument,
			   "%s: win %p: no window of this communicator", f,
			   win);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
	struct ncclWindow_vidmem *w;
	dicomm_result_t status;

	if (!nccl_enter_any(comm, NCCL_THERE))
		return nccl_handle_refuse(__func__, comm);
	w = win ? find_window(win, comm, true) : NULL;
	status = w ? dicomm_comm_deregister(comm->comm, w->handle)
		   : DICOMM_SUCCESS;
	nccl_leave(comm);
	if (win && !w)
		return no_window(__func__, win);
	free(w);
	return nccl_from(status);
}
NCCL_ALIAS(ncclCommWindowDeregister);

ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **ptr)
{
	struct ncclWindow_vidmem *w;

	if (!ptr)
		return nccl_refuse(ncclInvalidArgument, "%s: ptr is NULL",
				   __func__);
	*ptr = NULL;
	if (!nccl_enter_shared(comm, NCCL_THERE))
		return nccl_handle_refuse(__func__, comm);
	w = find_window(win, comm, false);
	if (w)
		*ptr = w->buff;
	nccl_leave_shared(comm);
	return w ? ncclSuccess : no_window(__func__, win);
}
NCCL_ALIAS(ncclWinGetUserPtr);
