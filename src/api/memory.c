/* SPDX-License-Identifier: BSD-3-Clause */
/* The public functions for memory: allocate, free, copy, register. */
#include "src/core/memory.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/accel/accel.h"
#include "src/accel/host/memory.h"
#include "src/base/cancel.h"
#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/core/host_access.h"
#include "src/device/device.h"
#include "src/device/user_buffer.h"
#include "src/memory/blocked_streams.h"
#include "src/core/fault.h"

/* How long to wait for deferred frees */
#define FREED_MS 2000

/* If the device is full, run deferred frees and try again. */
static dicomm_result_t take(const struct accel *accel, int index, size_t size,
			    void **ptr)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	uint64_t end = clock_ms() + FREED_MS;
	dicomm_result_t status;
	bool last, none;

	for (;;) {
		deferred_sweep();
		last = !deferred_waits() || clock_ms() > end;
		log_hold();
		none = streams_unblocked_await(accel->work, index);
		status = accel->alloc(index, size, ptr);
		if (none)
			streams_unblocked_end();
		last |= status != DICOMM_ERR_NO_MEMORY;
		log_release(last);
		if (last)
			return status;
		nanosleep(&nap, NULL);
	}
}

/* Record device memory, so that transports can reach it; see user_buffer.h. */
static dicomm_result_t allocate(const struct accel *accel, int index,
				void **ptr, size_t size)
{
	dicomm_result_t status;

	if (!accel->work)
		return accel->alloc(index, size, ptr);
	TRY(take(accel, index, size, ptr));
	status = user_buffer_allocated(accel, index, *ptr, size);
	if (status != DICOMM_SUCCESS) {
		lease_free(accel, index, *ptr);
		*ptr = NULL;
	}
	return status;
}

dicomm_result_t dicomm_mem_alloc(void **ptr, size_t size)
{
	CANCEL_HELD();
	const char *device = config_string(CONFIG_DEVICE);
	const struct accel *accel;
	char why[256];
	int index;

	if (!ptr)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "mem_alloc: ptr is NULL");
	if (size > PTRDIFF_MAX)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "mem_alloc: size %zu: more than can be addressed",
			    size);
	if (!size) {
		*ptr = NULL;
		return DICOMM_SUCCESS;
	}
	accel = accel_find(*device ? device : "host", &index, why, sizeof(why));
	if (!accel)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "mem_alloc: device %s: %s", device, why);
	return allocate(accel, index, ptr, size);
}

dicomm_result_t dicomm_comm_mem_alloc(dicomm_comm_t comm, void **ptr,
				      size_t size)
{
	CANCEL_HELD();
	static const char f[] = "comm_mem_alloc";

	TRY(comm_check(comm, f));
	if (!ptr)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "%s: ptr is NULL", f);
	if (size > PTRDIFF_MAX)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s: size %zu: more than can be addressed", f,
			    size);
	*ptr = NULL;
	return size ? allocate(comm->accel, comm->index, ptr, size)
		    : DICOMM_SUCCESS;
}

dicomm_result_t dicomm_comm_memcpy(dicomm_comm_t comm, void *dst,
				   const void *src, size_t size,
				   dicomm_stream_t stream)
{
	CANCEL_HELD();
	static const char f[] = "comm_memcpy";

	TRY(comm_check(comm, f));
	if (!size)
		return DICOMM_SUCCESS;
	if (!dst || !src)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "%s: %s is NULL", f,
			    dst ? "src" : "dst");
	if (!device_has_memory(comm->dev)) {
		TRY(host_access_check(comm, f, "dst", dst));
		TRY(host_access_check(comm, f, "src", src));
	}
	if (comm->dev)
		return device_finish(comm, stream, dst, src, size);
	TRY(dicomm_comm_stream_synchronize(comm, stream));
	memcpy(dst, src, size);
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_comm_stream_synchronize(dicomm_comm_t comm,
					       dicomm_stream_t stream)
{
	CANCEL_HELD();

	TRY(comm_check(comm, "comm_stream_synchronize"));
	if (!comm->dev)
		return stream ? dicomm_host_stream_synchronize(stream)
			      : DICOMM_SUCCESS;
	TRY(device_finish(comm, stream, NULL, NULL, 0));
	return fault_is(comm) ? fault_report(comm) : DICOMM_SUCCESS;
}

dicomm_result_t dicomm_mem_free(void *ptr)
{
	CANCEL_HELD();
	struct accel_export where;
	dicomm_result_t status;
	size_t offset;

	if (!ptr)
		return DICOMM_SUCCESS;
	status = user_buffer_free(ptr);
	if (status != DICOMM_ERR_INVALID_ARGUMENT)
		return status;
	if (host_memory_find(ptr, 1, &where, &offset))
		return accels[0]->free(ptr);
	return FAIL(status, "mem_free: ptr %p is not from mem_alloc", ptr);
}

/* Later handles are larger, so a stale one is never taken for another. */
static _Atomic uintptr_t last_handle;

static void keep(struct dicomm_comm *comm, struct registration *r)
{
	r->handle = atomic_fetch_add(&last_handle, 1) + 1;
	pthread_mutex_lock(&comm->registered.lock);
	r->next = comm->registered.first;
	comm->registered.first = r;
	pthread_mutex_unlock(&comm->registered.lock);
}

/* NULL: it is not, or not any more, a handle of this communicator. */
static struct registration *give_up(struct dicomm_comm *comm, uintptr_t handle)
{
	struct registration **at = &comm->registered.first, *r;

	pthread_mutex_lock(&comm->registered.lock);
	while ((r = *at) && r->handle != handle)
		at = &r->next;
	if (r)
		*at = r->next;
	pthread_mutex_unlock(&comm->registered.lock);
	return r;
}

dicomm_result_t dicomm_comm_register(dicomm_comm_t comm, void *buff,
				     size_t size, void **handle)
{
	CANCEL_HELD();
	struct registration *r;
	dicomm_result_t status;

	TRY(comm_check(comm, "comm_register"));
	if (!buff)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_register: buff is NULL");
	if (!size)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_register: size is 0");
	if (size > PTRDIFF_MAX || size > UINTPTR_MAX - (uintptr_t)buff)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_register: size %zu: more than can be "
			    "addressed from %p on",
			    size, buff);
	if (!handle)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_register: handle is NULL");
	TRY(device_check(comm, "comm_register", "buff", buff));
	r = calloc(1, sizeof(*r));
	if (!r)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_register: out of memory");
	if (device_has_memory(comm->dev))
		status = user_buffer_add(comm, buff, size, &r->user_buffer);
	else
		status = comm_mem_register(comm, buff, size, true, &r->handles);
	if (status != DICOMM_SUCCESS) {
		free(r);
		return status;
	}
	keep(comm, r);
	*handle = (void *)r->handle;
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_comm_deregister(dicomm_comm_t comm, void *handle)
{
	CANCEL_HELD();
	struct registration *r;

	TRY(comm_check_handle(comm, "comm_deregister"));
	r = give_up(comm, (uintptr_t)handle);
	if (!r)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_deregister: handle %p is not of this "
			    "communicator, or was deregistered",
			    handle);
	comm_mem_deregister(comm, &r->handles);
	if (r->user_buffer)
		user_buffer_remove(comm, r->user_buffer);
	free(r);
	return DICOMM_SUCCESS;
}
