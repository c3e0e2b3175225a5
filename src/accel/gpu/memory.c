/* SPDX-License-Identifier: BSD-3-Clause */
#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/accel/gpu/device.h"
#include "src/accel/gpu/memory.h"
#include "src/base/log.h"

/* Memory that gpu_memory_alloc() or gpu_memory_map_host() gave out. */
struct gpu_memory {
	void *host, *device;
	size_t bytes;
	int index; /* the device that allocated it */
	int users; /* calls of map_host() without their unmap_host() */
	struct gpu_memory *next;
};

/* Returns where the list points to the entry whose host or device address is p,
 * or to its end. */
static struct gpu_memory **memory_find(struct gpu_memory **list, const void *p)
{
	while (*list && (*list)->host != p && (*list)->device != p)
		list = &(*list)->next;
	return list;
}

dicomm_result_t gpu_memory_alloc(struct gpu_driver *gpu, int index,
				 size_t bytes, void **ptr)
{
	struct gpu_memory *m;
	void *p = NULL;
	int error;

	if (!bytes)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s:%d: cannot allocate 0 bytes", gpu->kind, index);
	TRY(gpu_device_enter(gpu, index));
	m = calloc(1, sizeof(*m));
	if (!m) {
		gpu_device_leave(gpu);
		return gpu_device_no_memory(gpu, index);
	}
	error = gpu->api.alloc(&p, bytes);
	gpu_device_leave(gpu);
	if (error) {
		free(m);
		return FAIL(gpu_device_status(gpu, error),
			    "%s:%d: cannot allocate %zu bytes: %s (%d)",
			    gpu->kind, index, bytes, gpu->error_text(error),
			    error);
	}
	m->device = p;
	m->bytes = bytes;
	m->index = index;
	pthread_mutex_lock(&gpu->lock);
	m->next = gpu->allocated;
	gpu->allocated = m;
	pthread_mutex_unlock(&gpu->lock);
	*ptr = m->device;
	return DICOMM_SUCCESS;
}

dicomm_result_t gpu_memory_free(struct gpu_driver *gpu, void *ptr)
{
	struct gpu_memory **at, *m = NULL;
	int index, error;

	pthread_mutex_lock(&gpu->lock);
	at = ptr ? memory_find(&gpu->allocated, ptr) : NULL;
	if (at && *at) {
		m = *at;
		*at = m->next;
	}
	pthread_mutex_unlock(&gpu->lock);
	if (!m)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s: %p: not allocated by this library", gpu->kind,
			    ptr);
	index = m->index;
	free(m);
	TRY(gpu_device_enter(gpu, index));
	error = gpu->api.free(ptr);
	return gpu_device_done(gpu, error, index, "cannot free memory");
}

bool gpu_memory_owner(struct gpu_driver *gpu, const void *ptr,
		      struct accel_owner *owner)
{
	char why[sizeof(gpu->none_why)];

	return gpu_device_count(gpu, why, sizeof(why)) &&
	       gpu->owner(ptr, owner);
}

/* Find the allocation of ptr and its device. Managed memory gets no id and no
 * size, because its pages move: a NIC that registers its address would use
 * pages of the host, while kernels use those of the device. */
static dicomm_result_t allocation(struct gpu_driver *gpu, const void *ptr,
				  int *index, struct accel_allocation *a)
{
	struct accel_owner owner;
	void *start = NULL;
	size_t size = 0;
	int error;

	if (!gpu_memory_owner(gpu, ptr, &owner))
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%p: not memory of a %s device", ptr, gpu->kind);
	*index = owner.index;
	if (owner.managed) {
		*a = (struct accel_allocation){.base = ptr};
		return DICOMM_SUCCESS;
	}
	TRY(gpu_device_enter(gpu, *index));
	error = gpu->api.range(&start, &size, (void *)(uintptr_t)ptr);
	if (!error && gpu->buffer_id((uintptr_t)start, &a->id))
		a->id = 0;
	TRY(gpu_device_done(gpu, error, *index, "where an allocation begins"));
	a->base = start;
	a->bytes = size;
	return DICOMM_SUCCESS;
}

dicomm_result_t gpu_memory_allocation(struct gpu_driver *gpu, const void *ptr,
				      struct accel_allocation *a)
{
	int index;

	return allocation(gpu, ptr, &index, a);
}

dicomm_result_t gpu_memory_reach(struct gpu_driver *gpu, int index, int other)
{
	int error;

	/* Starts the other device, if this is its first use. */
	TRY(gpu_device_enter(gpu, other));
	gpu_device_leave(gpu);
	TRY(gpu_device_enter(gpu, index));
	error = gpu->peer(index, other);
	gpu_device_leave(gpu);
	if (!error)
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_UNSUPPORTED,
		    "%s:%d does not reach memory of %s:%d: %s (%d)", gpu->kind,
		    index, gpu->kind, other, gpu->error_text(error), error);
}

dicomm_result_t gpu_memory_export(struct gpu_driver *gpu, const void *ptr,
				  struct accel_handle *h)
{
	struct accel_handle out = {0};
	struct accel_allocation a;
	int index, error;

	TRY(allocation(gpu, ptr, &index, &a));
	if (!a.id)
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "%s:%d: memory at %p is managed, or has no "
			    "number",
			    gpu->kind, index, ptr);
	TRY(gpu_device_enter(gpu, index));
	error = gpu->api.ipc_get(out.vendor, (void *)(uintptr_t)a.base);
	gpu_device_leave(gpu);
	if (error)
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "%s:%d: memory at %p is of a kind that "
			    "other processes cannot map: %s (%d)",
			    gpu->kind, index, ptr, gpu->error_text(error),
			    error);
	out.id = a.id;
	out.bytes = a.bytes;
	out.pid = (uint64_t)getpid();
	out.offset = (uintptr_t)ptr - (uintptr_t)a.base;
	*h = out;
	return DICOMM_SUCCESS;
}

dicomm_result_t gpu_memory_import(struct gpu_driver *gpu, int index,
				  const struct accel_handle *h, void **base)
{
	void *p = NULL;
	int error;

	TRY(gpu_device_enter(gpu, index));
	error = gpu->ipc_open(&p, h->vendor, (pid_t)h->pid);
	TRY(gpu_device_done(gpu, error, index, "memory of another process"));
	*base = p;
	return DICOMM_SUCCESS;
}

void gpu_memory_unimport(struct gpu_driver *gpu, int index, void *base)
{
	if (!base || gpu_device_enter(gpu, index) != DICOMM_SUCCESS)
		return;
	(void)gpu_device_done(gpu, gpu->api.ipc_close(base), index,
			      "cannot let go of memory of another process");
}

/* Pin host memory for the devices. Most drivers pin only memory that the
 * process may write, even if the device only loads it. So memory that is mapped
 * only for loads becomes writable, but nothing writes it. Where the driver can
 * pin memory read-only, it stays read-only. */
static int host_pin(struct gpu_driver *gpu, void *host, size_t bytes,
		    bool loads)
{
	unsigned flags = gpu->host_flags;

	if (!loads)
		return gpu->api.host_register(host, bytes, flags);
	if (gpu->host_read_only != 0 &&
	    !gpu->api.host_register(host, bytes, flags | gpu->host_read_only))
		return 0;
	/* If the process may not make it writable, host_register() fails and
	 * says so. */
	(void)mprotect(host, bytes, PROT_READ | PROT_WRITE);
	return gpu->api.host_register(host, bytes, flags);
}

/* The caller holds the lock and has entered the device. */
static dicomm_result_t map_new(struct gpu_driver *gpu, int index, void *host,
			       size_t bytes, bool loads,
			       struct gpu_memory **out)
{
	struct gpu_memory *m = calloc(1, sizeof(*m));
	void *p = NULL;
	int error;

	if (!m)
		return gpu_device_no_memory(gpu, index);
	error = host_pin(gpu, host, bytes, loads);
	if (!error) {
		error = gpu->api.host_pointer(&p, host, 0);
		if (error)
			gpu->api.host_unregister(host);
	}
	if (error) {
		free(m);
		return FAIL(gpu_device_status(gpu, error),
			    "%s:%d: cannot reach %zu bytes of host "
			    "memory at %p: %s (%d)",
			    gpu->kind, index, bytes, host,
			    gpu->error_text(error), error);
	}
	m->host = host;
	m->device = p;
	m->bytes = bytes;
	m->next = gpu->mapped;
	gpu->mapped = m;
	*out = m;
	return DICOMM_SUCCESS;
}

/* Memory is registered once for all devices of the kind. */
dicomm_result_t gpu_memory_map_host(struct gpu_driver *gpu, int index,
				    void *host, size_t bytes, bool loads,
				    void **device)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	struct gpu_memory *m;

	TRY(gpu_device_enter(gpu, index));
	pthread_mutex_lock(&gpu->lock);
	m = *memory_find(&gpu->mapped, host);
	if (m && m->bytes != bytes)
		status = FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			      "%s:%d: host memory at %p is mapped with "
			      "%zu bytes, not %zu",
			      gpu->kind, index, host, m->bytes, bytes);
	else if (!m)
		status = map_new(gpu, index, host, bytes, loads, &m);
	if (status == DICOMM_SUCCESS) {
		m->users++;
		*device = m->device;
	}
	pthread_mutex_unlock(&gpu->lock);
	gpu_device_leave(gpu);
	return status;
}

void gpu_memory_unmap_host(struct gpu_driver *gpu, int index, void *host)
{
	struct gpu_memory **at, *m;

	if (!host || gpu_device_enter(gpu, index) != DICOMM_SUCCESS)
		return;
	pthread_mutex_lock(&gpu->lock);
	at = memory_find(&gpu->mapped, host);
	m = *at;
	assert(m);
	if (!--m->users) {
		*at = m->next;
		if (gpu->api.host_unregister(host))
			log_warn("%s:%d: host memory at %p stays "
				 "registered",
				 gpu->kind, index, host);
		free(m);
	}
	pthread_mutex_unlock(&gpu->lock);
	gpu_device_leave(gpu);
}

/* The dma-buf covers the whole pages around the allocation. If the range
 * extends beyond the end of the driver's allocation, it covers the pages around
 * the range. */
dicomm_result_t gpu_memory_dmabuf(struct gpu_driver *gpu, const void *ptr,
				  size_t bytes, int *fd, uint64_t *offset)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t at = (uintptr_t)ptr, base, end;
	struct accel_allocation a;
	int index, error, got = -1;
	uint64_t skip = 0;

	TRY(allocation(gpu, ptr, &index, &a));
	if (!a.bytes)
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "%s:%d: memory at %p is managed", gpu->kind, index,
			    ptr);
	base = (uintptr_t)a.base;
	end = base + a.bytes;
	if (at + bytes > end) {
		base = at;
		end = at + bytes;
	}
	base &= ~(page - 1);
	end = (end + page - 1) & ~(page - 1);
	if (!gpu->has_dmabuf(index))
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "%s:%d: the driver has no dma-bufs", gpu->kind,
			    index);
	TRY(gpu_device_enter(gpu, index));
	error = gpu->range_fd(&got, ptr, (void *)base, end - base, &skip);
	TRY(gpu_device_done(gpu, error, index, "a dma-buf"));
	*fd = got;
	*offset = skip + (at - base);
	return DICOMM_SUCCESS;
}
