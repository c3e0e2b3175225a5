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

/* What is registered, until it is no longer, or the communicator ends. As a
 * window it has the program's own pointer in it; nobody else reaches into it.
 */
struct ncclWindow_vidmem {
	struct ncclComm *comm;
	void *buff, *handle;
	bool window;
	struct ncclWindow_vidmem *next;
};

static struct ncclWindow_vidmem *registered;

/* Taken out of the list if that is wanted */
static struct ncclWindow_vidmem *
find(const void *handle, const struct ncclComm *comm, bool window, bool take)
{
	struct ncclWindow_vidmem **at, *w;

	pthread_mutex_lock(&lock);
	for (at = &registered; (w = *at); at = &w->next)
		if (w == handle && w->comm == comm && w->window == window)
			break;
	if (w && take)
		*at = w->next;
	pthread_mutex_unlock(&lock);
	return w;
}

static struct ncclWindow_vidmem *take_one_of(const struct ncclComm *comm)
{
	struct ncclWindow_vidmem **at, *w;

	pthread_mutex_lock(&lock);
	for (at = &registered; (w = *at); at = &w->next)
		if (w->comm == comm)
			break;
	if (w)
		*at = w->next;
	pthread_mutex_unlock(&lock);
	return w;
}

bool nccl_memory_is_left(const struct ncclComm *comm)
{
	bool left = false;

	pthread_mutex_lock(&lock);
	for (struct ncclWindow_vidmem *w = registered; w && !left; w = w->next)
		left = w->comm == comm;
	pthread_mutex_unlock(&lock);
	return left;
}

void nccl_memory_forget(struct ncclComm *comm)
{
	struct ncclWindow_vidmem *w;

	while ((w = take_one_of(comm))) {
		dicomm_comm_deregister(comm->comm, w->handle);
		free(w);
	}
}

static ncclResult_t enroll(const char *f, struct ncclComm *comm, void *buff,
			   size_t size, bool window,
			   struct ncclWindow_vidmem **out)
{
	struct ncclWindow_vidmem *w;
	dicomm_result_t status;

	if (!nccl_enter(comm))
		return nccl_handle_refuse(f, comm);
	w = malloc(sizeof(*w));
	if (!w) {
		nccl_leave(comm);
		return nccl_refuse(ncclSystemError, "%s: out of memory", f);
	}
	*w = (struct ncclWindow_vidmem){
		.comm = comm, .buff = buff, .window = window};
	status = dicomm_comm_register(comm->comm, buff, size, &w->handle);
	if (status == DICOMM_SUCCESS) {
		pthread_mutex_lock(&lock);
		w->next = registered;
		registered = w;
		pthread_mutex_unlock(&lock);
		*out = w;
	} else {
		free(w);
	}
	nccl_leave(comm);
	return nccl_from(status);
}

static ncclResult_t strike(const char *f, struct ncclComm *comm, void *handle,
			   bool window)
{
	struct ncclWindow_vidmem *w;
	dicomm_result_t status;

	if (!nccl_enter_any(comm, NCCL_THERE))
		return nccl_handle_refuse(f, comm);
	/* What could not be registered is NULL in NCCL. */
	w = handle ? find(handle, comm, window, true) : NULL;
	status = w ? dicomm_comm_deregister(comm->comm, w->handle)
		   : DICOMM_SUCCESS;
	nccl_leave(comm);
	if (handle && !w)
		return nccl_refuse(ncclInvalidArgument,
				   "%s: %p: no %s of this communicator", f,
				   handle,
				   window ? "window" : "handle of a buffer");
	free(w);
	return nccl_from(status);
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size,
			      void **handle)
{
	struct ncclWindow_vidmem *w = NULL;
	ncclResult_t result;

	if (!handle)
		return nccl_refuse(ncclInvalidArgument, "%s: handle is NULL",
				   __func__);
	result = enroll(__func__, comm, buff, size, false, &w);
	*handle = w;
	return result;
}
NCCL_ALIAS(ncclCommRegister);

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
	return strike(__func__, comm, handle, false);
}
NCCL_ALIAS(ncclCommDeregister);

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size,
				    ncclWindow_t *win, int flags)
{
	if (!win)
		return nccl_refuse(ncclInvalidArgument, "%s: win is NULL",
				   __func__);
	*win = NULL;
	if (flags & ~(NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING))
		return nccl_refuse(ncclInvalidUsage,
				   "%s: flags 0x%x: windows for NCCL's device "
				   "interface (GIN, CFT) do not exist here",
				   __func__, (unsigned)flags);
	return enroll(__func__, comm, buff, size, true, win);
}
NCCL_ALIAS(ncclCommWindowRegister);

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
	return strike(__func__, comm, win, true);
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
	w = find(win, comm, true, false);
	if (w)
		*ptr = w->buff;
	nccl_leave_shared(comm);
	if (w)
		return ncclSuccess;
	return nccl_refuse(ncclInvalidArgument,
			   "%s: win %p: no window of this communicator",
			   __func__, (void *)win);
}
NCCL_ALIAS(ncclWinGetUserPtr);
