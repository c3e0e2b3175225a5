/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory: allocated and registered. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "compat/nccl/call.h"
#include "compat/nccl/device.h"
#include "compat/nccl/other.h"
#include "compat/nccl/window.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* What ncclMemAlloc() has given: memory of the library, or of the driver where
 * the library has no communicator yet. Few, so that a list will do. */
static struct block {
	void *at;
	bool is_drivers;
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
	int error = nccl_device_alloc(device->kind, ptr, size);

	if (!error)
		return ncclSuccess;
	*ptr = NULL;
	return nccl_refuse(ncclUnhandledCudaError,
			   "ncclMemAlloc: %zu bytes on %s: the driver gives "
			   "error %d",
			   size, device->name, error);
}

static ncclResult_t allocate(struct block *b, void **ptr, size_t size)
{
	struct nccl_device device;
	dicomm_result_t status;

	nccl_device_current(&device);
	if (device.kind == NCCL_HOST || !device.name[0])
		return nccl_from(dicomm_mem_alloc(ptr, size));
	if (from_communicator(device.name, ptr, size, &status))
		return nccl_from(status);
	b->is_drivers = true;
	b->kind = device.kind;
	return from_driver(&device, ptr, size);
}

ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
	ncclResult_t result;
	struct block *b;

	if (!ptr)
		return nccl_refuse(ncclInvalidArgument, "%s: ptr is NULL",
				   __func__);
	*ptr = NULL;
	if (!size)
		return ncclSuccess;
	nccl_look_around();
	b = calloc(1, sizeof(*b));
	if (!b)
		return nccl_refuse(ncclSystemError, "%s: out of memory",
				   __func__);
	result = allocate(b, ptr, size);
	if (result != ncclSuccess) {
		free(b);
		return result;
	}
	b->at = *ptr;
	pthread_mutex_lock(&lock);
	b->next = blocks;
	blocks = b;
	pthread_mutex_unlock(&lock);
	return ncclSuccess;
}
NCCL_ALIAS(ncclMemAlloc);

static struct block *take_block(const void *ptr)
{
	struct block **at, *b;

	pthread_mutex_lock(&lock);
	for (at = &blocks; (b = *at); at = &b->next)
		if (b->at == ptr)
			break;
	if (b)
		*at = b->next;
	pthread_mutex_unlock(&lock);
	return b;
}

/* As NCCL and RCCL do, frees also what the program has from cudaMalloc() or
 * hipMalloc(). */
ncclResult_t ncclMemFree(void *ptr)
{
	struct block *b;
	int error;

	if (!ptr)
		return ncclSuccess;
	b = take_block(ptr);
	if (!b && nccl_device_free_any(ptr))
		return ncclSuccess;
	if (!b || !b->is_drivers) {
		free(b);
		return nccl_from(dicomm_mem_free(ptr));
	}
	error = nccl_device_free(b->kind, ptr);
	free(b);
	if (error)
		return nccl_refuse(ncclUnhandledCudaError,
				   "%s: %p: the driver gives error %d",
				   __func__, ptr, error);
	return ncclSuccess;
}
NCCL_ALIAS(ncclMemFree);

/* A buffer that is registered, until it is no longer, or the communicator ends
 */
struct buffer {
	struct ncclComm *comm;
	void *handle;
	struct buffer *next;
};

static struct buffer *registered;

static struct buffer *take(const void *handle, const struct ncclComm *comm)
{
	struct buffer **at, *b;

	pthread_mutex_lock(&lock);
	for (at = &registered; (b = *at); at = &b->next)
		if ((b == handle || !handle) && b->comm == comm)
			break;
	if (b)
		*at = b->next;
	pthread_mutex_unlock(&lock);
	return b;
}

bool nccl_memory_is_left(const struct ncclComm *comm)
{
	bool left = false;

	pthread_mutex_lock(&lock);
	for (struct buffer *b = registered; b && !left; b = b->next)
		left = b->comm == comm;
	pthread_mutex_unlock(&lock);
	return left;
}

void nccl_memory_forget(struct ncclComm *comm)
{
	struct buffer *b;

	while ((b = take(NULL, comm))) {
		dicomm_comm_deregister(comm->comm, b->handle);
		free(b);
	}
	nccl_windows_forget(comm);
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size,
			      void **handle)
{
	struct buffer *b;
	dicomm_result_t status;

	if (!handle)
		return nccl_refuse(ncclInvalidArgument, "%s: handle is NULL",
				   __func__);
	*handle = NULL;
	if (!nccl_enter(comm))
		return nccl_handle_refuse(__func__, comm);
	b = malloc(sizeof(*b));
	if (!b) {
		nccl_leave(comm);
		return nccl_refuse(ncclSystemError, "%s: out of memory",
				   __func__);
	}
	*b = (struct buffer){.comm = comm};
	status = dicomm_comm_register(comm->comm, buff, size, &b->handle);
	if (status == DICOMM_SUCCESS) {
		pthread_mutex_lock(&lock);
		b->next = registered;
		registered = b;
		pthread_mutex_unlock(&lock);
		*handle = b;
	} else {
		free(b);
	}
	nccl_leave(comm);
	return nccl_from(status);
}
NCCL_ALIAS(ncclCommRegister);

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
	struct buffer *b;
	dicomm_result_t status = DICOMM_SUCCESS;

	if (!nccl_enter_any(comm, NCCL_THERE))
		return nccl_handle_refuse(__func__, comm);
	/* What could not be registered is NULL in NCCL. */
	b = handle ? take(handle, comm) : NULL;
	if (b)
		status = dicomm_comm_deregister(comm->comm, b->handle);
	nccl_leave(comm);
	free(b);
	if (handle && !b)
		return nccl_refuse(ncclInvalidArgument,
				   "%s: %p: no handle of a buffer of this "
				   "communicator",
				   __func__, handle);
	return nccl_from(status);
}
NCCL_ALIAS(ncclCommDeregister);
