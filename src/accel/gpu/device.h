/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The common shape of backends for GPUs whose drivers look like CUDA's. Each
 * backend includes this once, after the names below and the functions that the
 * drivers do not share; all is static, so that each has its own devices.
 *
 * Needed: GPU_KIND, GPU_VENDOR, types gpu_pointer, gpu_stream, gpu_event,
 * gpu_module, gpu_function, gpu_ipc; the table `api` with the functions named
 * here; and
 *   gpu_load(why, len)           open the library; how many devices
 *   gpu_device_init(index)       what a device needs before it is used
 *   gpu_relax(), gpu_restore()   let the calling thread do what would spoil
 *                                graphs that others capture, undo
 *   gpu_enter(index), gpu_leave  the same, and make a device its one, undo
 *   gpu_units(index)             its processors
 *   gpu_details(index, info)     description
 *   gpu_loaded()                 as accel.h says
 *   gpu_owner(ptr, owner)        the same
 *   gpu_stream_open(index, native, s, fits)  the user's stream, or with NULL
 *                                the default one; is it of that device?
 *   gpu_stream_close(s, own)     done with it; own: stream_create() made it
 *   gpu_module_of(launch)        which module has its kernel
 *   gpu_image(module, i)         image i to try for a module, NULL: no more
 *   gpu_wrong_image(error)       is it for another device?
 *   gpu_compile(index, module, code, why, len)  an image of the source, in
 *                                memory that stays; DICOMM_ERR_UNSUPPORTED,
 *                                not logged: there is no way, and why
 *   gpu_module_load(m, code, bytes)  bytes: 0, of what was compiled
 *   gpu_host_function(stream, fn, arg)  fn(arg) in its turn
 *   gpu_range_fd(fd, at, base, bytes, skip)  a descriptor of whole pages from
 *                                base on, for an allocation that `at` lies in;
 *                                how far base lies in what it is of
 *   gpu_copy, gpu_has_dmabuf, gpu_flushes, gpu_buffer_id, gpu_peer,
 *   gpu_ipc_open, gpu_error_text
 *   GPU_CAPTURED                 why a stream that api.capturing() tells of is
 *                                not taken
 *   GPU_CAPTURE_IMPLICIT         what it returns of the default stream if that
 *                                holds up one that is captured; 0: never
 *   GPU_QUEUES                   as accel.h says of queues
 *   GPU_STREAM_WAITS                    the header with its stream waits:
 * stream_wait_probe() and the stream wait operations of accel.h what
 * gpu/event.h names
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
/* Blocks for each processor: as many threads as it holds; and of kernels that
 * read many vectors at a time, for which these threads have not the registers
 */
#define GPU_BLOCKS_PER_UNIT 8
#define GPU_BLOCKS_OF_MANY 4

struct kernel {
	char name[sizeof(((struct launch *)0)->kernel)];
	gpu_function function;
	struct kernel *next;
};

struct device {
	_Atomic bool ready;
	bool waits;  /* by itself, for a stream wait */
	bool writes; /* itself, how far a stream has come */
	uint32_t units;
	bool loaded[LAUNCH_MODULES];
	gpu_module modules[LAUNCH_MODULES];
	char *unfit[LAUNCH_MODULES]; /* why it has none */
	/* Of each module; only ever grows at its head */
	struct kernel *_Atomic kernels[LAUNCH_MODULES];
};

/* What alloc() and map_host() gave out */
struct memory {
	void *host, *device;
	size_t bytes;
	int index; /* where alloc() made it */
	int users; /* of map_host() */
	struct memory *next;
};

struct accel_stream {
	int index;
	bool own;
	void *native; /* as the user calls it */
	gpu_stream handle;
	/* Where the host reduces for it; of which types, as bits */
	struct pinned *pinned;
	uint64_t host_reduced;
};

static struct device devices[GPU_DEVICES];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int ndevices;
static char none_why[256];

/* Guards what devices make when first needed, and the lists. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory *allocated, *mapped;

/* ---- what there is ---- */

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

/* Does a device wait for stream waits by itself? When it starts, under the
 * lock. */
static dicomm_result_t stream_wait_probe(int index, bool *waits);
/* And does it write, for events? */
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

/* Under the lock. */
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

/* Make a device the one of this thread, until gpu_leave(). Once it is ready
 * this takes no lock: another thread may hold that while it waits for a stream
 * which only this one lets go on. */
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

/* Of a device that is used already */
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

/* The entry of a list for which a pointer stands, and the way to it. */
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

/* Of memory that neighbours map by a descriptor: none is. */
static bool gpu_find(const void *addr, size_t len, struct accel_export *where,
		     size_t *offset)
{
	(void)addr;
	(void)len;
	(void)where;
	(void)offset;
	return false;
}

static dicomm_result_t gpu_import(const struct accel_export *e, void **base)
{
	(void)e;
	(void)base;
	return DICOMM_ERR_UNSUPPORTED;
}

static void gpu_unimport(const struct accel_export *e, void *base)
{
	(void)e;
	(void)base;
}

static uint64_t gpu_freed(uint64_t i, uint64_t *id)
{
	(void)i;
	*id = 0;
	return 0;
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

/* Of what device it is, too. What the driver moves has no place that others
 * could rely on: a NIC that is given its address would keep to pages of the
 * host, while kernels use those of the device. */
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

	/* Both are there. */
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

/* Most drivers pin only what the process may write, though the device only
 * loads it. So a mapping that is for loads becomes one for stores, too, which
 * nobody does; but where the driver offers to do without. */
static int host_pin(void *host, size_t bytes, bool loads)
{
	unsigned flags = GPU_HOST_PORTABLE | GPU_HOST_DEVICEMAP;

	if (!loads)
		return api.host_register(host, bytes, flags);
	if (GPU_HOST_READ_ONLY != 0 &&
	    !api.host_register(host, bytes, flags | GPU_HOST_READ_ONLY))
		return GPU_SUCCESS;
	/* If it may not, the driver says so. */
	(void)mprotect(host, bytes, PROT_READ | PROT_WRITE);
	return api.host_register(host, bytes, flags);
}

/* Under the lock. */
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

/* What one device reaches, all of the kind do: it is registered once. */
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

/* Whole pages around the allocation; around the range, where that reaches
 * beyond what the driver calls one allocation. */
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

/* Of what device the stream of a thread is, that of the thread says. What is
 * queued on the default stream while one that waits for it is captured,
 * fails and spoils that graph. */
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
	/* The default one may serve for no more than to open others. */
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

/* An image of this build */
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

/* What the runtime's compiler makes of the source, which drivers may look at
 * for as long as it is loaded */
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

/* Under the lock. What was found to have no way is not tried again. */
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

/* The driver loads a kernel when it is asked for it. Under the lock. */
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

/* All kernels of a type: loading one may wait for the device. Under the lock.
 */
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
