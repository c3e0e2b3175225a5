/* SPDX-License-Identifier: BSD-3-Clause */
/* The public functions for memory: allocate, free, copy, register. */
#include "src/core/memory.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/accel/accel.h"
#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/core/host_access.h"
#include "src/device/device.h"
#include "src/device/user_buffer.h"
#include "src/memory/blocked_streams.h"
#include "src/core/fault.h"

/* How long to wait for operations that block streams */
#define FREED_MS 2000

#define REGISTRATION_MAGIC UINT64_C(0xd1c04e6157000001)

struct registration {
	uint64_t magic;
	struct dicomm_comm *comm;
	struct mem_handles handles;      /* of host memory */
	struct user_buffer *user_buffer; /* of a device; or NULL */
};

/* Try to get all streams unblocked before an allocation. A driver that waits
 * for a blocked stream while it allocates may keep other threads from
 * unblocking it. But they may wait for this thread, so after some time it
 * allocates anyway. True: call streams_unblocked_end() afterwards. */
static bool unblock_streams(const struct accel *accel, int index)
{
	const struct timespec nap = {.tv_nsec = 50000};
	uint64_t end = clock_ms() + FREED_MS;

	while (!streams_unblocked_begin(accel->work, index)) {
		if (clock_ms() > end)
			return false;
		nanosleep(&nap, NULL);
	}
	return true;
}

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
		none = unblock_streams(accel, index);
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
	TRY(comm_check(comm, "comm_stream_synchronize"));
	if (!comm->dev)
		return stream ? dicomm_host_stream_synchronize(stream)
			      : DICOMM_SUCCESS;
	TRY(device_finish(comm, stream, NULL, NULL, 0));
	return fault_is(comm) ? fault_report(comm) : DICOMM_SUCCESS;
}

dicomm_result_t dicomm_mem_free(void *ptr)
{
	struct accel_export where;
	dicomm_result_t status;
	size_t offset;

	if (!ptr)
		return DICOMM_SUCCESS;
	status = user_buffer_free(ptr);
	if (status != DICOMM_ERR_INVALID_ARGUMENT)
		return status;
	if (accels[0]->find(ptr, 1, &where, &offset))
		return accels[0]->free(ptr);
	return FAIL(status, "mem_free: ptr %p is not from mem_alloc", ptr);
}

dicomm_result_t dicomm_comm_register(dicomm_comm_t comm, void *buff,
				     size_t size, void **handle)
{
	struct registration *r;
	dicomm_result_t status;

	TRY(comm_check(comm, "comm_register"));
	if (!buff)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_register: buff is NULL");
	if (!size)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_register: size is 0");
	if (!handle)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_register: handle is NULL");
	TRY(device_check(comm, "comm_register", "buff", buff));
	r = malloc(sizeof(*r));
	if (!r)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_register: out of memory");
	*r = (struct registration){.comm = comm};
	if (device_has_memory(comm->dev))
		status = user_buffer_add(comm, buff, size, &r->user_buffer);
	else
		status = comm_mem_register(comm, buff, size, true, &r->handles);
	if (status != DICOMM_SUCCESS) {
		free(r);
		return status;
	}
	r->magic = REGISTRATION_MAGIC;
	atomic_fetch_add(&comm->registrations, 1);
	*handle = r;
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_comm_deregister(dicomm_comm_t comm, void *handle)
{
	struct registration *r = handle;

	TRY(comm_check_handle(comm, "comm_deregister"));
	if (!r || r->magic != REGISTRATION_MAGIC || r->comm != comm)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_deregister: handle %p is not of this "
			    "communicator",
			    handle);
	r->magic = 0;
	comm_mem_deregister(comm, &r->handles);
	if (r->user_buffer)
		user_buffer_remove(comm, r->user_buffer);
	free(r);
	atomic_fetch_sub(&comm->registrations, 1);
	return DICOMM_SUCCESS;
}
