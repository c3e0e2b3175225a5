/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The code that GPU backends share if their drivers look like CUDA's. Each
 * backend includes this file once, after it has defined the names below and the
 * functions in which drivers differ. Everything is static, so each backend has
 * its own devices.
 *
 * A backend defines GPU_KIND, GPU_VENDOR, the types gpu_pointer, gpu_stream,
 * gpu_event, gpu_module, gpu_function, gpu_ipc, the table `api` of the driver's
 * functions that this file calls, what gpu/event.h names, and:
 *   gpu_load(why, len)    opens the library; returns the number of devices
 *   gpu_device_init(index)
 *                         prepares a device for its first use
 *   gpu_relax, gpu_restore
 *                         lets the calling thread make calls that would spoil
 *                         graph captures of others; undoes that
 *   gpu_enter(index), gpu_leave()
 *                         the same, and makes a device current for the thread;
 *                         undoes both
 *   gpu_units(index)      returns its number of multiprocessors
 *   gpu_details(index, info)
 *                         fills in the PCI address and the description
 *   gpu_loaded()          as loaded() of accel.h
 *   gpu_owner(ptr, owner)
 *                         as owner() of accel.h
 *   gpu_stream_open(index, native, s, fits)
 *                         gives the user's stream, or the default one if native
 *                         is NULL; *fits: is it a stream of that device?
 *   gpu_stream_close(s, own)
 *                         closes a stream; own: stream_create() made it
 *   gpu_module_of(launch)
 *                         returns the number of the module of a kernel
 *   gpu_image(module, i)  returns image i to try for a module, or NULL
 *   gpu_wrong_image(error)
 *                         returns true if an image does not fit the device
 *   gpu_compile(index, module, code, why, len)
 *                         compiles the source to an image, in memory that the
 *                         caller owns. Returns DICOMM_ERR_UNSUPPORTED, without
 *                         a log line but with the reason in why, if it cannot
 *   gpu_module_load(m, code, bytes)
 *                         loads an image; bytes is 0 for a compiled one
 *   gpu_host_function(stream, fn, arg)
 *                         queues a call of fn(arg) on the host
 *   gpu_range_fd(fd, at, base, bytes, skip)
 *                         gives a dma-buf of whole pages from base on, for the
 *                         allocation that `at` lies in; *skip is the offset of
 *                         base in the dma-buf
 *   gpu_copy, gpu_has_dmabuf, gpu_flushes, gpu_buffer_id, gpu_peer,
 *   gpu_ipc_open, gpu_error_text
 *   GPU_CAPTURED          text: why a stream is refused that api.capturing()
 *                         reports as captured, where that matters
 *   GPU_CAPTURE_IMPLICIT  error of api.capturing() for the default stream while
 *                         using that would spoil a capture; 0: never happens
 *   GPU_QUEUES            as queues of accel.h
 *   GPU_STREAM_WAITS      the header with stream_wait_probe() and the stream
 *                         wait operations of accel.h
 *   GPU_HELD, GPU_GRAPHS  held and graphs of accel.h
 */
#ifndef DICOMM_ACCEL_GPU_DEVICE_H
#define DICOMM_ACCEL_GPU_DEVICE_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/accel/accel.h"
#include "src/accel/launch/image.h"
#include "src/accel/launch/launch.h"
#include "src/base/log.h"

#define GPU_DEVICES 64
/* Most blocks to start for each multiprocessor: as many as keep all its threads
 * busy. Kernels that read many vectors at a time need more registers, so fewer
 * of their threads fit. */
#define GPU_BLOCKS_PER_UNIT 8
#define GPU_BLOCKS_OF_MANY 4

struct kernel {
	char name[sizeof(((struct launch *)0)->kernel)];
	gpu_function function;
	struct kernel *next;
};

struct device {
	_Atomic bool ready;
	bool waits;  /* it can wait for a word of memory by itself */
	bool writes; /* its streams can write a word of memory */
	uint32_t units;
	bool loaded[LAUNCH_MODULES];
	gpu_module modules[LAUNCH_MODULES];
	/* why the device cannot have this module; NULL: not known to fail */
	char *unfit[LAUNCH_MODULES];
	/* Kernels of each module. Entries are only added, at the head, so
	 * readers need no lock. */
	struct kernel *_Atomic kernels[LAUNCH_MODULES];
};

/* Memory that gpu_alloc() or gpu_map_host() gave out. */
struct memory {
	void *host, *device;
	size_t bytes;
	int index; /* the device that gpu_alloc() used */
	int users; /* calls of gpu_map_host() without their gpu_unmap_host() */
	struct memory *next;
};

struct accel_stream {
	int index;
	bool own;     /* the library created it */
	void *native; /* the user's handle; NULL: the default stream */
	gpu_stream handle;
	/* Set if the host reduces on this stream: its pinned memory, and the
	 * types that the host reduces, one bit each. */
	struct pinned *pinned;
	uint64_t host_reduced;
};

static struct device devices[GPU_DEVICES];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int ndevices;
static char none_why[256];

/* Guards the start of a device, loading of kernels, and the lists of memory. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory *allocated, *mapped;

/* ---- what the driver can do ---- */

static dicomm_result_t status_of(int error)
{
	switch (error) {
	case GPU_SUCCESS:
		return DICOMM_SUCCESS;
	case GPU_OUT_OF_MEMORY:
#ifdef GPU_OUT_OF_HOST_MEMORY
	case GPU_OUT_OF_HOST_MEMORY:
#endif
		return DICOMM_ERR_NO_MEMORY;
	case GPU_NOT_SUPPORTED:
		return DICOMM_ERR_UNSUPPORTED;
	default:
		return DICOMM_ERR_DEVICE;
	}
}

static dicomm_result_t failed(int error, int index, const char *what)
{
	return FAIL(status_of(error), GPU_KIND ":%d: %s: %s (%d)", index, what,
		    gpu_error_text(error), error);
}

/* Finds out whether a device waits for a word of memory by itself. Called when
 * the device starts, under the lock. */
static dicomm_result_t stream_wait_probe(int index, bool *waits);
/* Finds out whether streams of a device write a word of memory, for events. */
static dicomm_result_t event_probe(int index, bool waits, bool *writes);

static dicomm_result_t no_memory(int index)
{
	return FAIL(DICOMM_ERR_NO_MEMORY, GPU_KIND ":%d: out of memory", index);
}

static void setup(void)
{
	ndevices = gpu_load(none_why, sizeof(none_why));
	if (ndevices > GPU_DEVICES)
		ndevices = GPU_DEVICES;
}

static int gpu_count(char *why, size_t len)
{
	pthread_once(&once, setup);
	if (!ndevices)
		snprintf(why, len, "%s", none_why);
	return ndevices;
}

static dicomm_result_t check_index(int index)
{
	char why[sizeof(none_why)];
	int n = gpu_count(why, sizeof(why));

	if (index >= 0 && index < n)
		return DICOMM_SUCCESS;
	if (!n)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    GPU_KIND " device %d: %s", index, why);
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
		    GPU_KIND " device %d: there are %d", index, n);
}

static dicomm_result_t gpu_describe(int index, dicomm_device_info_t *info)
{
	TRY(check_index(index));
	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), GPU_KIND ":%d", index);
	snprintf(info->vendor, sizeof(info->vendor), GPU_VENDOR);
	return gpu_details(index, info);
}

/* ---- devices ---- */

/* Start a device at its first use. The caller holds the lock. */
static dicomm_result_t device_start(int index)
{
	struct device *d = &devices[index];
	dicomm_result_t status;
	int error;

	if (d->ready)
		return DICOMM_SUCCESS;
	error = gpu_device_init(index);
	if (!error)
		error = gpu_enter(index);
	if (error)
		return failed(error, index, "cannot be used");
	status = stream_wait_probe(index, &d->waits);
	if (status == DICOMM_SUCCESS)
		status = event_probe(index, d->waits, &d->writes);
	d->units = gpu_units(index);
	atomic_store_explicit(&d->ready, status == DICOMM_SUCCESS,
			      memory_order_release);
	gpu_leave();
	return status;
}

/* Make a device current for this thread, until gpu_leave(). Once the device is
 * ready this takes no lock. Another thread may hold the lock while it waits for
 * a stream that only this thread can release. */
static dicomm_result_t enter(int index)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	int error;

	TRY(check_index(index));
	if (!atomic_load_explicit(&devices[index].ready,
				  memory_order_acquire)) {
		pthread_mutex_lock(&lock);
		status = device_start(index);
		pthread_mutex_unlock(&lock);
	}
	TRY(status);
	error = gpu_enter(index);
	return error ? failed(error, index, "cannot be used") : DICOMM_SUCCESS;
}

/* Undo enter(), and turn the error of a call on the device into a status. */
static dicomm_result_t leave(int error, int index, const char *what)
{
	gpu_leave();
	return error ? failed(error, index, what) : DICOMM_SUCCESS;
}

/* ---- memory ---- */

static gpu_pointer pointer(const void *p)
{
	return (gpu_pointer)(uintptr_t)p;
}

/* Returns where the list points to the entry whose host or device address is p,
 * or to its end. */
static struct memory **memory_find(struct memory **list, const void *p)
{
	while (*list && (*list)->host != p && (*list)->device != p)
		list = &(*list)->next;
	return list;
}

static dicomm_result_t gpu_alloc(int index, size_t bytes, void **ptr)
{
	struct memory *m;
	gpu_pointer p = 0;
	int error;

	if (!bytes)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    GPU_KIND ":%d: cannot allocate 0 bytes", index);
	TRY(enter(index));
	m = calloc(1, sizeof(*m));
	if (!m) {
		gpu_leave();
		return no_memory(index);
	}
	error = api.alloc(&p, bytes);
	gpu_leave();
	if (error) {
		free(m);
		return FAIL(status_of(error),
			    GPU_KIND ":%d: cannot allocate %zu bytes: %s (%d)",
			    index, bytes, gpu_error_text(error), error);
	}
	m->device = (void *)(uintptr_t)p;
	m->bytes = bytes;
	m->index = index;
	pthread_mutex_lock(&lock);
	m->next = allocated;
	allocated = m;
	pthread_mutex_unlock(&lock);
	*ptr = m->device;
	return DICOMM_SUCCESS;
}

static dicomm_result_t gpu_free(void *ptr)
{
	struct memory **at, *m = NULL;
	int index, error;

	pthread_mutex_lock(&lock);
	at = ptr ? memory_find(&allocated, ptr) : NULL;
	if (at && *at) {
		m = *at;
		*at = m->next;
	}
	pthread_mutex_unlock(&lock);
	if (!m)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    GPU_KIND ": %p: not allocated by this library",
			    ptr);
	index = m->index;
	free(m);
	TRY(enter(index));
	error = api.free(pointer(ptr));
	return leave(error, index, "cannot free memory");
}

static unsigned gpu_caps(int index)
{
	char why[sizeof(none_why)];

	if (index < 0 || index >= gpu_count(why, sizeof(why)))
		return 0;
	return ACCEL_IPC | ACCEL_MAP_HOST |
	       (gpu_has_dmabuf(index) ? ACCEL_DMABUF : 0) | gpu_flushes(index);
}

static bool gpu_owns(const void *ptr, struct accel_owner *owner)
{
	char why[sizeof(none_why)];

	return gpu_count(why, sizeof(why)) && gpu_owner(ptr, owner);
}

/* Find the allocation of ptr and its device. Managed memory gets no id and no
 * size, because its pages move: a NIC that registers its address would use
 * pages of the host, while kernels use those of the device. */
static dicomm_result_t allocation(const void *ptr, int *index,
				  struct accel_allocation *a)
{
	struct accel_owner owner;
	gpu_pointer start = 0;
	size_t size = 0;
	int error;

	if (!gpu_owns(ptr, &owner))
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%p: not memory of a " GPU_KIND " device", ptr);
	*index = owner.index;
	if (owner.managed) {
		*a = (struct accel_allocation){.base = ptr};
		return DICOMM_SUCCESS;
	}
	TRY(enter(*index));
	error = api.range(&start, &size, pointer(ptr));
	if (!error && gpu_buffer_id((uintptr_t)start, &a->id))
		a->id = 0;
	TRY(leave(error, *index, "where an allocation begins"));
	a->base = (const void *)(uintptr_t)start;
	a->bytes = size;
	return DICOMM_SUCCESS;
}

static dicomm_result_t gpu_allocation(const void *ptr,
				      struct accel_allocation *a)
{
	int index;

	return allocation(ptr, &index, a);
}

static dicomm_result_t gpu_reach(int index, int other)
{
	int error;

	/* Starts the other device, if this is its first use. */
	TRY(enter(other));
	gpu_leave();
	TRY(enter(index));
	error = gpu_peer(index, other);
	gpu_leave();
	if (!error)
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_UNSUPPORTED,
		    GPU_KIND ":%d does not reach memory of " GPU_KIND
			     ":%d: %s (%d)",
		    index, other, gpu_error_text(error), error);
}

static dicomm_result_t gpu_mem_export(const void *ptr, struct accel_handle *h)
{
	struct accel_handle out = {0};
	struct accel_allocation a;
	gpu_ipc ipc;
	int index, error;

	TRY(allocation(ptr, &index, &a));
	if (!a.id)
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    GPU_KIND ":%d: memory at %p is managed, or has no "
				     "number",
			    index, ptr);
	TRY(enter(index));
	error = api.ipc_get(&ipc, pointer(a.base));
	gpu_leave();
	if (error)
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    GPU_KIND ":%d: memory at %p is of a kind that "
				     "other processes cannot map: %s (%d)",
			    index, ptr, gpu_error_text(error), error);
	out.id = a.id;
	out.bytes = a.bytes;
	out.pid = (uint64_t)getpid();
	out.offset = (uintptr_t)ptr - (uintptr_t)a.base;
	_Static_assert(sizeof(ipc) == sizeof(out.vendor), "handle");
	memcpy(out.vendor, &ipc, sizeof(ipc));
	*h = out;
	return DICOMM_SUCCESS;
}

static dicomm_result_t gpu_mem_import(int index, const struct accel_handle *h,
				      void **base)
{
	gpu_pointer p = 0;
	gpu_ipc ipc;
	int error;

	TRY(enter(index));
	memcpy(&ipc, h->vendor, sizeof(ipc));
	error = gpu_ipc_open(&p, ipc, (pid_t)h->pid);
	TRY(leave(error, index, "memory of another process"));
	*base = (void *)(uintptr_t)p;
	return DICOMM_SUCCESS;
}

static void gpu_mem_unimport(int index, void *base)
{
	if (!base || enter(index) != DICOMM_SUCCESS)
		return;
	(void)leave(api.ipc_close(pointer(base)), index,
		    "cannot let go of memory of another process");
}

/* Pin host memory for the devices. Most drivers pin only memory that the
 * process may write, even if the device only loads it. So memory that is mapped
 * only for loads becomes writable, but nothing writes it. Where the driver can
 * pin memory read-only, it stays read-only. */
static int host_pin(void *host, size_t bytes, bool loads)
{
	unsigned flags = GPU_HOST_PORTABLE | GPU_HOST_DEVICEMAP;

	if (!loads)
		return api.host_register(host, bytes, flags);
	if (GPU_HOST_READ_ONLY != 0 &&
	    !api.host_register(host, bytes, flags | GPU_HOST_READ_ONLY))
		return GPU_SUCCESS;
	/* If the process may not make it writable, host_register() fails and
	 * says so. */
	(void)mprotect(host, bytes, PROT_READ | PROT_WRITE);
	return api.host_register(host, bytes, flags);
}

/* The caller holds the lock and has entered the device. */
static dicomm_result_t map_new(int index, void *host, size_t bytes, bool loads,
			       struct memory **out)
{
	struct memory *m = calloc(1, sizeof(*m));
	gpu_pointer p = 0;
	int error;

	if (!m)
		return no_memory(index);
	error = host_pin(host, bytes, loads);
	if (!error) {
		error = api.host_pointer(&p, host, 0);
		if (error)
			api.host_unregister(host);
	}
	if (error) {
		free(m);
		return FAIL(status_of(error),
			    GPU_KIND ":%d: cannot reach %zu bytes of host "
				     "memory at %p: %s (%d)",
			    index, bytes, host, gpu_error_text(error), error);
	}
	m->host = host;
	m->device = (void *)(uintptr_t)p;
	m->bytes = bytes;
	m->next = mapped;
	mapped = m;
	*out = m;
	return DICOMM_SUCCESS;
}

/* Memory is registered once for all devices of the kind. */
static dicomm_result_t gpu_map_host(int index, void *host, size_t bytes,
				    bool loads, void **device)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	struct memory *m;

	TRY(enter(index));
	pthread_mutex_lock(&lock);
	m = *memory_find(&mapped, host);
	if (m && m->bytes != bytes)
		status = FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			      GPU_KIND ":%d: host memory at %p is mapped with "
				       "%zu bytes, not %zu",
			      index, host, m->bytes, bytes);
	else if (!m)
		status = map_new(index, host, bytes, loads, &m);
	if (status == DICOMM_SUCCESS) {
		m->users++;
		*device = m->device;
	}
	pthread_mutex_unlock(&lock);
	gpu_leave();
	return status;
}

static void gpu_unmap_host(int index, void *host)
{
	struct memory **at, *m;

	if (!host || enter(index) != DICOMM_SUCCESS)
		return;
	pthread_mutex_lock(&lock);
	at = memory_find(&mapped, host);
	m = *at;
	assert(m);
	if (!--m->users) {
		*at = m->next;
		if (api.host_unregister(host))
			log_warn(GPU_KIND ":%d: host memory at %p stays "
					  "registered",
				 index, host);
		free(m);
	}
	pthread_mutex_unlock(&lock);
	gpu_leave();
}

/* The dma-buf covers the whole pages around the allocation. If the range
 * extends beyond the end of the driver's allocation, it covers the pages around
 * the range. */
static dicomm_result_t gpu_dmabuf(const void *ptr, size_t bytes, int *fd,
				  uint64_t *offset)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t at = (uintptr_t)ptr, base, end;
	struct accel_allocation a;
	int index, error, got = -1;
	uint64_t skip = 0;

	TRY(allocation(ptr, &index, &a));
	if (!a.bytes)
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    GPU_KIND ":%d: memory at %p is managed", index,
			    ptr);
	base = (uintptr_t)a.base;
	end = base + a.bytes;
	if (at + bytes > end) {
		base = at;
		end = at + bytes;
	}
	base &= ~(page - 1);
	end = (end + page - 1) & ~(page - 1);
	if (!gpu_has_dmabuf(index))
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    GPU_KIND ":%d: the driver has no dma-bufs", index);
	TRY(enter(index));
	error = gpu_range_fd(&got, ptr, (gpu_pointer)base, end - base, &skip);
	TRY(leave(error, index, "a dma-buf"));
	*fd = got;
	*offset = skip + (at - base);
	return DICOMM_SUCCESS;
}

/* ---- streams ---- */

/* Refuse a stream of the user that is being captured into a graph. Work on the
 * default stream fails, and spoils the graph, while a stream that waits for the
 * default stream is captured. */
static dicomm_result_t refuse_capture(const struct accel_stream *s)
{
	gpu_capture state = GPU_CAPTURE_NONE;
	int error;

	if (s->own || (!s->native && GPU_CAPTURE_IMPLICIT == 0))
		return DICOMM_SUCCESS;
	TRY(enter(s->index));
	error = api.capturing(s->handle, &state);
	gpu_leave();
	if (error && error == GPU_CAPTURE_IMPLICIT)
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    GPU_KIND ":%d: the default stream cannot be used "
				     "while a stream that waits for it is "
				     "captured into a graph",
			    s->index);
	if (error || state == GPU_CAPTURE_NONE)
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_UNSUPPORTED,
		    GPU_KIND ":%d: stream %p " GPU_CAPTURED, s->index,
		    s->native);
}

static dicomm_result_t stream_new(int index, gpu_stream handle, bool own,
				  struct accel_stream **out)
{
	struct accel_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return no_memory(index);
	s->index = index;
	s->handle = handle;
	s->own = own;
	*out = s;
	return DICOMM_SUCCESS;
}

static dicomm_result_t gpu_open(int index, void *native,
				struct accel_stream **out)
{
	struct accel_stream *s = NULL;
	gpu_stream handle = NULL;
	dicomm_result_t status;
	bool fits = true;
	int error;

	TRY(enter(index));
	error = gpu_stream_open(index, native, &handle, &fits);
	gpu_leave();
	if (!fits)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    GPU_KIND ":%d: stream %p is of another device or "
				     "context",
			    index, native);
	if (error)
		return failed(error, index, "a stream");
	status = stream_new(index, handle, false, &s);
	if (status == DICOMM_SUCCESS)
		s->native = native;
	/* A communicator may open the default stream only to create others on
	 * its device, so this does not fail during a capture. */
	if (status == DICOMM_SUCCESS && native)
		status = refuse_capture(s);
	if (status == DICOMM_SUCCESS) {
		*out = s;
		return DICOMM_SUCCESS;
	}
	gpu_stream_close(handle, false);
	free(s);
	return status;
}

static dicomm_result_t gpu_open_beside(struct accel_stream *other,
				       struct accel_stream **s)
{
	int least = 0, greatest = 0, error;
	gpu_stream handle = NULL;
	dicomm_result_t status;

	TRY(enter(other->index));
	error = api.priorities(&least, &greatest);
	if (!error)
		error = api.stream_create(&handle, GPU_STREAM_NON_BLOCKING,
					  greatest);
	TRY(leave(error, other->index, "a stream"));
	status = stream_new(other->index, handle, true, s);
	if (status != DICOMM_SUCCESS)
		gpu_stream_close(handle, true);
	return status;
}

static void host_reduce_close(struct accel_stream *s);

static void gpu_close(struct accel_stream *s)
{
	if (!s)
		return;
	host_reduce_close(s);
	if (enter(s->index) == DICOMM_SUCCESS) {
		gpu_stream_close(s->handle, s->own);
		gpu_leave();
	}
	free(s);
}

/* ---- kernels ---- */

/* Load the first image of this build that the driver accepts. Returns
 * DICOMM_ERR_UNSUPPORTED, with the reason in why, if it accepts none. */
static dicomm_result_t image_load(int index, int module, char *why, size_t len)
{
	struct device *d = &devices[index];
	const struct image *image;
	int error = GPU_SUCCESS, i;

	for (i = 0; (image = gpu_image(module, i)); i++) {
		error = gpu_module_load(&d->modules[module], image->data,
					(size_t)(image->end - image->data));
		if (!error)
			return DICOMM_SUCCESS;
		if (!gpu_wrong_image(error))
			return failed(error, index, image->name);
	}
	if (i)
		snprintf(why, len,
			 "the driver takes none of %d images: %s (%d)", i,
			 gpu_error_text(error), error);
	else
		snprintf(why, len, "this build has none for " GPU_KIND);
	return DICOMM_ERR_UNSUPPORTED;
}

/* Compile the source with the runtime's compiler, and load the result. On
 * success the code is never freed, because a driver may read it as long as the
 * module is loaded. */
static dicomm_result_t source_load(int index, int module, char *why, size_t len)
{
	void *code = NULL;
	int error;

	TRY(gpu_compile(index, module, &code, why, len));
	error = gpu_module_load(&devices[index].modules[module], code, 0);
	if (!error) {
		log_debug(GPU_KIND ":%d: kernels were compiled", index);
		return DICOMM_SUCCESS;
	}
	free(code);
	if (!gpu_wrong_image(error))
		return failed(error, index, "compiled kernels");
	snprintf(why, len, "the driver does not take compiled ones: %s (%d)",
		 gpu_error_text(error), error);
	return DICOMM_ERR_UNSUPPORTED;
}

/* Load the module with the kernels of a type. The caller holds the lock. A
 * module that neither images nor the compiler provide is not tried again. */
static dicomm_result_t module_load(int index, int module)
{
	char none[128] = "", why[256], text[400];
	struct device *d = &devices[index];
	dicomm_result_t status;

	if (d->loaded[module])
		return DICOMM_SUCCESS;
	if (!d->unfit[module]) {
		status = image_load(index, module, none, sizeof(none));
		if (status == DICOMM_ERR_UNSUPPORTED)
			status = source_load(index, module, why, sizeof(why));
		d->loaded[module] = status == DICOMM_SUCCESS;
		if (status != DICOMM_ERR_UNSUPPORTED)
			return status;
		snprintf(text, sizeof(text), "%s; %s", none, why);
		d->unfit[module] = strdup(text);
		if (!d->unfit[module])
			return no_memory(index);
	}
	log_set_last_error(d->unfit[module]);
	return DICOMM_ERR_UNSUPPORTED;
}

static struct kernel *kernel_find(int index, const struct launch *l)
{
	struct kernel *k = atomic_load_explicit(
		&devices[index].kernels[l->module], memory_order_acquire);

	while (k && strcmp(k->name, l->kernel))
		k = k->next;
	return k;
}

/* Get a kernel from its module. Drivers may load it only now. The caller holds
 * the lock. */
static dicomm_result_t kernel_load(int index, const struct launch *l)
{
	struct device *d = &devices[index];
	int error, module = gpu_module_of(l);
	struct kernel *k;

	if (kernel_find(index, l))
		return DICOMM_SUCCESS;
	TRY(module_load(index, module));
	k = calloc(1, sizeof(*k));
	if (!k)
		return no_memory(index);
	error = api.module_function(&k->function, d->modules[module],
				    l->kernel);
	if (error) {
		free(k);
		return failed(error, index, l->kernel);
	}
	memcpy(k->name, l->kernel, sizeof(k->name));
	k->next = atomic_load(&d->kernels[l->module]);
	atomic_store_explicit(&d->kernels[l->module], k, memory_order_release);
	return DICOMM_SUCCESS;
}

/* Load all kernels of a type at once, since loading one may wait for the
 * device. The caller holds the lock. */
static dicomm_result_t kernels_load(int index, dicomm_datatype_t type)
{
	static const dicomm_redop_t ops[] = {
		DICOMM_SUM, DICOMM_PROD, DICOMM_AVG, DICOMM_MAX,
		DICOMM_MIN, DICOMM_BAND, DICOMM_BOR, DICOMM_BXOR,
	};
	const void *const src[2] = {NULL, NULL};
	struct launch l;

	for (size_t o = 0; o < sizeof(ops) / sizeof(*ops); o++) {
		if (launch_reduce(&l, type, ops[o], NULL, NULL, NULL, 1))
			TRY(kernel_load(index, &l));
		if (launch_fold(&l, type, ops[o], NULL, src, 2, 1))
			TRY(kernel_load(index, &l));
	}
	if (launch_scale(&l, type, NULL, NULL, NULL, 0, 1))
		TRY(kernel_load(index, &l));
	if (launch_divide(&l, type, NULL, NULL, 1, 1))
		TRY(kernel_load(index, &l));
	return DICOMM_SUCCESS;
}

static dicomm_result_t gpu_prepare(struct accel_stream *s,
				   dicomm_datatype_t type)
{
	dicomm_result_t status;

	TRY(enter(s->index));
	pthread_mutex_lock(&lock);
	status = kernels_load(s->index, type);
	pthread_mutex_unlock(&lock);
	gpu_leave();
	return status;
}

static dicomm_result_t launch_start(struct accel_stream *s, struct launch *l)
{
	struct kernel *k = kernel_find(s->index, l);
	void *args[LAUNCH_ARGS + 1] = {NULL};
	uint32_t blocks;
	int error;

	if (!l->items)
		return DICOMM_SUCCESS;
	if (!k)
		return FAIL(DICOMM_ERR_INTERNAL,
			    GPU_KIND ":%d: kernel %s was not prepared",
			    s->index, l->kernel);
	blocks = launch_grid(l, LAUNCH_BLOCK,
			     devices[s->index].units *
				     (l->many > 1 ? GPU_BLOCKS_OF_MANY
						  : GPU_BLOCKS_PER_UNIT));
	for (int i = 0; i < l->nargs; i++)
		args[i] = &l->args[i];
	TRY(enter(s->index));
	error = api.launch(k->function, blocks, 1, 1, LAUNCH_BLOCK, 1, 1, 0,
			   s->handle, args, NULL);
	return leave(error, s->index, l->kernel);
}

static int launch_device(const struct accel_stream *s)
{
	return s->index;
}

#define LAUNCH_KIND GPU_KIND
#include "src/accel/launch/work.h"

static dicomm_result_t gpu_queue_copy(struct accel_stream *s, void *dst,
				      const void *src, size_t bytes)
{
	int error;

	if (!bytes)
		return DICOMM_SUCCESS;
	TRY(refuse_capture(s));
	TRY(enter(s->index));
	error = gpu_copy(dst, src, bytes, s->handle);
	return leave(error, s->index, "a copy");
}

#endif
