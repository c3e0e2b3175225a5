/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * OpenCL devices that work on the memory of the process, as CPUs do.
 *
 * Neighbours map their memory as they map any host memory, so this backend has
 * only streams and kernels. It refuses a device with memory of its own, because
 * OpenCL cannot hand that memory to another process. A stream is an in-order
 * cl_command_queue. A stream wait holds it by a user event.
 *
 * A queue belongs to a context of the user, and kernels that run in it must
 * belong to the same context. So each context gets programs of its own, when a
 * reduction first needs them.
 */
#include "src/accel/accel.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/accel/launch/launch.h"
#include "src/accel/opencl/api.h"
#include "src/accel/opencl/error.h"
#include "src/accel/opencl/program.h"
#include "src/base/fork.h"
#include "src/base/library.h"
#include "src/base/log.h"
#include "src/base/type.h"

#define MAX_PLATFORMS 16
#define MAX_DEVICES 64
#define TEXT_BYTES 512 /* bytes for a text that a device gives about itself */
/* Work-groups for each compute unit: enough that the time in which the last
 * ones end does not count. */
#define GROUPS_PER_UNIT 8

extern const struct accel accel_host;

static struct opencl_api cl;

/* The program of one kernel */
struct program {
	char kernel[sizeof(((struct launch *)0)->kernel)];
	opencl_program handle;
	struct program *next;
};

struct context {
	opencl_context handle;
	int index, users;
	struct program *programs; /* guarded by `making` */
	struct context *next;
};

static struct device {
	opencl_platform platform;
	opencl_device handle;
	bool cpu;
	uint32_t units;
	/* Used for streams without a queue of the user; created when
	 * first needed. */
	struct context *context;
	opencl_queue queue;
} devices[MAX_DEVICES];

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int ndevices;
static char none_why[256];

/* Guards contexts, and what devices create when first needed. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct context *contexts;

/* Held while a program is made, which may take seconds: streams that need the
 * same one at once make it once. Who has it takes no other of these locks. */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

struct kernel {
	char name[sizeof(((struct launch *)0)->kernel)];
	opencl_kernel handle;
	struct kernel *next;
};

struct accel_stream {
	struct context *context;
	opencl_queue queue;
	/* of this stream alone, since a kernel object holds its arguments */
	struct kernel *kernels;
};

struct accel_event {
	pthread_mutex_t lock;
	int index;
	opencl_event handle; /* NULL: never recorded */
};

/* Queued waits that are not released, oldest first. */
struct closing {
	opencl_event user;
	struct closing *next;
};

struct accel_stream_wait {
	pthread_mutex_t lock;
	int index;
	struct closing *first, **last;
};

/* ---- what there is ---- */

static bool load(void)
{
	static const struct library_function functions[] = {
#define F(name, result, parameters) LIBRARY_FUNCTION(struct opencl_api, name)
		OPENCL_FUNCTIONS(F)
#undef F
			LIBRARY_END};
	void *lib = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!lib) {
		snprintf(none_why, sizeof(none_why), "no OpenCL: %s",
			 dlerror());
		return false;
	}
	return library_fill(lib, "libOpenCL.so.1, older than 2.0,", functions,
			    &cl, none_why, sizeof(none_why));
}

static uint64_t device_bits(opencl_device device, uint32_t what)
{
	uint64_t bits = 0;

	if (cl.clGetDeviceInfo(device, what, sizeof(bits), &bits, NULL))
		return 0;
	return bits;
}

/* Returns why the device cannot be used, or NULL. The device must access any
 * pointer of the process: it says so, or it is a CPU of PoCL, which does
 * without saying so. float32 must round as on the host. */
static const char *unusable(opencl_platform platform, opencl_device device)
{
	const uint64_t floats = OPENCL_FP_DENORM | OPENCL_FP_INF_NAN |
				OPENCL_FP_ROUND_TO_NEAREST;
	char name[64] = "";

	cl.clGetPlatformInfo(platform, OPENCL_PLATFORM_NAME, sizeof(name) - 1,
			     name, NULL);
	if (!(device_bits(device, OPENCL_DEVICE_SVM_CAPABILITIES) &
	      OPENCL_SVM_FINE_GRAIN_SYSTEM) &&
	    (strcmp(name, "Portable Computing Language") ||
	     !(device_bits(device, OPENCL_DEVICE_TYPE) &
	       OPENCL_DEVICE_TYPE_CPU)))
		return "has memory of its own";
	if ((device_bits(device, OPENCL_DEVICE_SINGLE_FP_CONFIG) & floats) !=
	    floats)
		return "does not compute float32 as IEEE 754 says";
	if (!device_bits(device, OPENCL_DEVICE_COMPILER_AVAILABLE))
		return "has no compiler";
	return NULL;
}

static void consider(opencl_platform platform, opencl_device handle)
{
	const char *why = unusable(platform, handle);
	struct device *d = &devices[ndevices];
	char name[128] = "device";

	if (why) {
		cl.clGetDeviceInfo(handle, OPENCL_DEVICE_NAME, sizeof(name) - 1,
				   name, NULL);
		log_info("opencl: %s: not used: it %s", name, why);
		snprintf(none_why, sizeof(none_why),
			 "OpenCL has only %s, "
			 "which %s",
			 name, why);
		return;
	}
	if (ndevices == MAX_DEVICES)
		return;
	d->platform = platform;
	d->handle = handle;
	d->cpu = device_bits(handle, OPENCL_DEVICE_TYPE) &
		 OPENCL_DEVICE_TYPE_CPU;
	if (cl.clGetDeviceInfo(handle, OPENCL_DEVICE_MAX_COMPUTE_UNITS,
			       sizeof(d->units), &d->units, NULL) ||
	    d->units == 0)
		d->units = 1;
	ndevices++;
}

/* In the child of a fork. Lists are whole at any moment: one store changes
 * them. */
static void reset_locks(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_mutex_init(&making, NULL);
}

static void setup(void)
{
	opencl_platform platforms[MAX_PLATFORMS];
	opencl_device found[MAX_DEVICES];
	uint32_t nplatforms = 0, n;
	int32_t error;

	fork_add(FORK_OPENCL, reset_locks);
	if (!load())
		return;
	error = cl.clGetPlatformIDs(MAX_PLATFORMS, platforms, &nplatforms);
	if (error || !nplatforms) {
		snprintf(none_why, sizeof(none_why),
			 "OpenCL has no platform: %s (%d)",
			 error_text(error ? error : OPENCL_PLATFORM_NOT_FOUND),
			 error);
		return;
	}
	snprintf(none_why, sizeof(none_why), "OpenCL has no device");
	for (uint32_t p = 0; p < nplatforms && p < MAX_PLATFORMS; p++) {
		n = 0;
		if (cl.clGetDeviceIDs(platforms[p], OPENCL_DEVICE_TYPE_ALL,
				      MAX_DEVICES, found, &n))
			continue;
		for (uint32_t i = 0; i < n && i < MAX_DEVICES; i++)
			consider(platforms[p], found[i]);
	}
}

static int opencl_count(char *why, size_t len)
{
	pthread_once(&once, setup);
	if (!ndevices)
		snprintf(why, len, "%s", none_why);
	return ndevices;
}

static dicomm_result_t check_index(int index)
{
	char why[sizeof(none_why)];
	int n = opencl_count(why, sizeof(why));

	if (index >= 0 && index < n)
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
		    "opencl device %d: there are %d", index, n);
}

/* OpenCL returns nothing of a text that does not fit, so the buffer is
 * large. */
static void device_text(int index, uint32_t what, char text[TEXT_BYTES])
{
	memset(text, 0, TEXT_BYTES);
	cl.clGetDeviceInfo(devices[index].handle, what, TEXT_BYTES - 1, text,
			   NULL);
}

/* Only asked about devices whose runtime knows the owner of a pointer; OpenCL
 * does not. */
static bool opencl_loaded(void)
{
	return false;
}

static dicomm_result_t opencl_describe(int index, dicomm_device_info_t *info)
{
	char vendor[TEXT_BYTES], name[TEXT_BYTES], version[TEXT_BYTES];

	TRY(check_index(index));
	memset(info, 0, sizeof(*info));
	device_text(index, OPENCL_DEVICE_VENDOR, vendor);
	device_text(index, OPENCL_DEVICE_NAME, name);
	device_text(index, OPENCL_DEVICE_VERSION, version);
	snprintf(info->name, sizeof(info->name), "opencl:%d", index);
	snprintf(info->vendor, sizeof(info->vendor), "%.31s", vendor);
	snprintf(info->description, sizeof(info->description), "%.70s, %.50s",
		 name, version);
	return DICOMM_SUCCESS;
}

/* ---- memory: the host's ---- */

static dicomm_result_t opencl_alloc(int index, size_t bytes, void **ptr)
{
	TRY(check_index(index));
	return accel_host.alloc(0, bytes, ptr);
}

static dicomm_result_t opencl_free(void *ptr)
{
	return accel_host.free(ptr);
}

static unsigned opencl_caps(int index)
{
	(void)index;
	return ACCEL_SHARES_HOST | ACCEL_MAP_HOST;
}

static bool opencl_owner(const void *ptr, struct accel_owner *owner)
{
	(void)ptr;
	(void)owner;
	return false;
}

static dicomm_result_t opencl_allocation(const void *ptr,
					 struct accel_allocation *a)
{
	(void)ptr;
	(void)a;
	return DICOMM_ERR_UNSUPPORTED;
}

static dicomm_result_t opencl_reach(int index, int other)
{
	(void)index;
	(void)other;
	return DICOMM_ERR_UNSUPPORTED;
}

static dicomm_result_t opencl_export(const void *ptr, struct accel_handle *h)
{
	(void)ptr;
	(void)h;
	return DICOMM_ERR_UNSUPPORTED;
}

static dicomm_result_t
opencl_mem_import(int index, const struct accel_handle *h, void **base)
{
	(void)index;
	(void)h;
	(void)base;
	return DICOMM_ERR_UNSUPPORTED;
}

static void opencl_mem_unimport(int index, void *base)
{
	(void)index;
	(void)base;
}

static dicomm_result_t opencl_map_host(int index, void *host, size_t bytes,
				       bool loads, void **device)
{
	(void)bytes;
	(void)loads;
	TRY(check_index(index));
	*device = host;
	return DICOMM_SUCCESS;
}

static void opencl_unmap_host(int index, void *host)
{
	(void)index;
	(void)host;
}

static dicomm_result_t opencl_dmabuf(const void *ptr, size_t bytes, int *fd,
				     uint64_t *offset)
{
	(void)ptr;
	(void)bytes;
	(void)fd;
	(void)offset;
	return DICOMM_ERR_UNSUPPORTED;
}

/* ---- contexts and programs ---- */

/* Take a reference to the record of a context, and make it for the first user.
 * The caller holds the lock. */
static dicomm_result_t context_get(opencl_context handle, int index,
				   struct context **out)
{
	struct context *c;

	for (c = contexts; c; c = c->next)
		if (c->handle == handle && c->index == index) {
			c->users++;
			*out = c;
			return DICOMM_SUCCESS;
		}
	c = calloc(1, sizeof(*c));
	if (!c)
		return FAIL(DICOMM_ERR_NO_MEMORY, "opencl:%d: out of memory",
			    index);
	cl.clRetainContext(handle);
	c->handle = handle;
	c->index = index;
	c->users = 1;
	c->next = contexts;
	contexts = c;
	*out = c;
	return DICOMM_SUCCESS;
}

static void context_put(struct context *c)
{
	struct context **at = &contexts;
	struct program *p;

	if (--c->users)
		return;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	while ((p = c->programs)) {
		c->programs = p->next;
		cl.clReleaseProgram(p->handle);
		free(p);
	}
	cl.clReleaseContext(c->handle);
	free(c);
}

/* The caller holds `making`. */
static dicomm_result_t program_new(struct context *c, const struct launch *l,
				   struct program **out)
{
	const struct device *d = &devices[c->index];
	const struct program_place at = {.cl = &cl,
					 .platform = d->platform,
					 .device = d->handle,
					 .context = c->handle,
					 .index = c->index,
					 .cpu = d->cpu};
	struct program *p = calloc(1, sizeof(*p));
	dicomm_result_t status;

	if (!p)
		return FAIL(DICOMM_ERR_NO_MEMORY, "opencl:%d: out of memory",
			    c->index);
	status = program_make(&at, l, &p->handle);
	if (status != DICOMM_SUCCESS) {
		free(p);
		return status;
	}
	memcpy(p->kernel, l->kernel, sizeof(p->kernel));
	p->next = c->programs;
	c->programs = p;
	*out = p;
	return DICOMM_SUCCESS;
}

static dicomm_result_t program_get(struct context *c, const struct launch *l,
				   opencl_program *handle)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	struct program *p;

	pthread_mutex_lock(&making);
	for (p = c->programs; p; p = p->next)
		if (!strcmp(p->kernel, l->kernel))
			break;
	if (!p)
		status = program_new(c, l, &p);
	if (status == DICOMM_SUCCESS)
		*handle = p->handle;
	pthread_mutex_unlock(&making);
	return status;
}

/* ---- streams ---- */

/* Make a stream. It takes over the caller's reference to the queue, also on
 * failure. The caller holds the lock. */
static dicomm_result_t stream_new(opencl_context context, int index,
				  opencl_queue queue, struct accel_stream **out)
{
	struct accel_stream *s = calloc(1, sizeof(*s));
	dicomm_result_t status;

	if (!s) {
		cl.clReleaseCommandQueue(queue);
		return FAIL(DICOMM_ERR_NO_MEMORY, "opencl:%d: out of memory",
			    index);
	}
	s->queue = queue;
	status = context_get(context, index, &s->context);
	if (status != DICOMM_SUCCESS) {
		cl.clReleaseCommandQueue(queue);
		free(s);
		return status;
	}
	*out = s;
	return DICOMM_SUCCESS;
}

static dicomm_result_t queue_new(opencl_context context, int index,
				 opencl_queue *queue)
{
	int32_t error;

	*queue = cl.clCreateCommandQueueWithProperties(
		context, devices[index].handle, NULL, &error);
	if (!*queue)
		return FAIL_CL(error, index,
			       "clCreateCommandQueueWithProperties");
	return DICOMM_SUCCESS;
}

/* Create the context and the queue of a device for streams without a queue of
 * the user. They are never destroyed: what the user queued on the default
 * stream may still run after the last stream of the library is closed. The
 * caller holds the lock. */
static dicomm_result_t default_queue(int index)
{
	struct device *d = &devices[index];
	const intptr_t properties[] = {OPENCL_CONTEXT_PLATFORM,
				       (intptr_t)d->platform, 0};
	opencl_context context;
	dicomm_result_t status;
	int32_t error;

	if (d->queue)
		return DICOMM_SUCCESS;
	context = cl.clCreateContext(properties, 1, &d->handle, NULL, NULL,
				     &error);
	if (!context)
		return FAIL_CL(error, index, "clCreateContext");
	status = context_get(context, index, &d->context);
	cl.clReleaseContext(context);
	if (status != DICOMM_SUCCESS)
		return status;
	status = queue_new(d->context->handle, index, &d->queue);
	if (status != DICOMM_SUCCESS)
		context_put(d->context);
	return status;
}

static dicomm_result_t open_default(int index, struct accel_stream **s)
{
	dicomm_result_t status;

	pthread_mutex_lock(&lock);
	status = default_queue(index);
	if (status == DICOMM_SUCCESS) {
		cl.clRetainCommandQueue(devices[index].queue);
		status = stream_new(devices[index].context->handle, index,
				    devices[index].queue, s);
	}
	pthread_mutex_unlock(&lock);
	return status;
}

static dicomm_result_t opencl_open(int index, void *native,
				   struct accel_stream **s)
{
	opencl_queue queue = native;
	opencl_context context = NULL;
	opencl_device device = NULL;
	uint64_t properties = 0;
	dicomm_result_t status;
	int32_t error;

	TRY(check_index(index));
	if (!native)
		return open_default(index, s);
	error = cl.clGetCommandQueueInfo(queue, OPENCL_QUEUE_DEVICE,
					 sizeof(device), &device, NULL);
	if (!error)
		error = cl.clGetCommandQueueInfo(queue, OPENCL_QUEUE_CONTEXT,
						 sizeof(context), &context,
						 NULL);
	if (!error)
		error = cl.clGetCommandQueueInfo(queue, OPENCL_QUEUE_PROPERTIES,
						 sizeof(properties),
						 &properties, NULL);
	if (error)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "opencl:%d: stream %p is no command queue: %s (%d)",
			    index, native, error_text(error), error);
	if (device != devices[index].handle)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "opencl:%d: stream %p is of another device", index,
			    native);
	if (properties & OPENCL_QUEUE_OUT_OF_ORDER)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "opencl:%d: stream %p runs out of order; a stream "
			    "must be an in-order queue",
			    index, native);
	cl.clRetainCommandQueue(queue);
	pthread_mutex_lock(&lock);
	status = stream_new(context, index, queue, s);
	pthread_mutex_unlock(&lock);
	return status;
}

static dicomm_result_t opencl_open_beside(struct accel_stream *other,
					  struct accel_stream **s)
{
	struct context *c = other->context;
	dicomm_result_t status;
	opencl_queue queue;

	TRY(queue_new(c->handle, c->index, &queue));
	pthread_mutex_lock(&lock);
	status = stream_new(c->handle, c->index, queue, s);
	pthread_mutex_unlock(&lock);
	return status;
}

static void opencl_close(struct accel_stream *s)
{
	struct kernel *k;

	if (!s)
		return;
	cl.clFlush(s->queue);
	while ((k = s->kernels)) {
		s->kernels = k->next;
		cl.clReleaseKernel(k->handle);
		free(k);
	}
	cl.clReleaseCommandQueue(s->queue);
	pthread_mutex_lock(&lock);
	context_put(s->context);
	pthread_mutex_unlock(&lock);
	free(s);
}

/* OpenCL has no host function in a queue, by which the host could reduce. */
static dicomm_result_t opencl_prepare_host_reduce(struct accel_stream *s,
						  dicomm_datatype_t type)
{
	(void)s;
	(void)type;
	log_set_last_error("the host does not reduce for OpenCL devices");
	return DICOMM_ERR_UNSUPPORTED;
}

/* End an operation: flush the queue, so that the device begins the work. */
static dicomm_result_t queued(struct accel_stream *s, int32_t error,
			      const char *what)
{
	if (!error)
		error = cl.clFlush(s->queue);
	return error ? FAIL_CL(error, s->context->index, what) : DICOMM_SUCCESS;
}

/* ---- events and stream waits ---- */

static dicomm_result_t opencl_event_create(int index, struct accel_event **out)
{
	struct accel_event *e;

	TRY(check_index(index));
	e = calloc(1, sizeof(*e));
	if (!e)
		return FAIL(DICOMM_ERR_NO_MEMORY, "opencl:%d: out of memory",
			    index);
	pthread_mutex_init(&e->lock, NULL);
	e->index = index;
	*out = e;
	return DICOMM_SUCCESS;
}

static void opencl_event_destroy(struct accel_event *e)
{
	if (!e)
		return;
	if (e->handle)
		cl.clReleaseEvent(e->handle);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

static dicomm_result_t opencl_event_record(struct accel_event *e,
					   struct accel_stream *s)
{
	opencl_event handle;
	int32_t error;

	error = cl.clEnqueueMarkerWithWaitList(s->queue, 0, NULL, &handle);
	if (!error) {
		pthread_mutex_lock(&e->lock);
		if (e->handle)
			cl.clReleaseEvent(e->handle);
		e->handle = handle;
		pthread_mutex_unlock(&e->lock);
	}
	return queued(s, error, "clEnqueueMarkerWithWaitList");
}

static dicomm_result_t opencl_event_query(const struct accel_event *e)
{
	struct accel_event *event = (struct accel_event *)e;
	int32_t error = OPENCL_SUCCESS, state = OPENCL_COMPLETE;

	pthread_mutex_lock(&event->lock);
	if (e->handle)
		error = cl.clGetEventInfo(e->handle,
					  OPENCL_EVENT_COMMAND_EXECUTION_STATUS,
					  sizeof(state), &state, NULL);
	pthread_mutex_unlock(&event->lock);
	if (error)
		return FAIL_CL(error, e->index, "clGetEventInfo");
	if (state < 0)
		return FAIL_CL(state, e->index, "work of a stream");
	return state == OPENCL_COMPLETE ? DICOMM_SUCCESS : DICOMM_AGAIN;
}

static dicomm_result_t opencl_wait_event(struct accel_stream *s,
					 const struct accel_event *e)
{
	if (!e->handle)
		return DICOMM_SUCCESS;
	return queued(
		s,
		cl.clEnqueueBarrierWithWaitList(s->queue, 1, &e->handle, NULL),
		"clEnqueueBarrierWithWaitList");
}

static dicomm_result_t opencl_stream_wait_create(int index,
						 struct accel_stream_wait **out)
{
	struct accel_stream_wait *g;

	TRY(check_index(index));
	g = calloc(1, sizeof(*g));
	if (!g)
		return FAIL(DICOMM_ERR_NO_MEMORY, "opencl:%d: out of memory",
			    index);
	pthread_mutex_init(&g->lock, NULL);
	g->index = index;
	g->last = &g->first;
	*out = g;
	return DICOMM_SUCCESS;
}

static void opencl_stream_wait_release(struct accel_stream_wait *g)
{
	struct closing *c;

	pthread_mutex_lock(&g->lock);
	c = g->first;
	assert(c);
	g->first = c->next;
	if (!g->first)
		g->last = &g->first;
	pthread_mutex_unlock(&g->lock);
	cl.clSetUserEventStatus(c->user, OPENCL_COMPLETE);
	cl.clReleaseEvent(c->user);
	free(c);
}

/* OpenCL calls that create or map something do not wait for a queue. */
static bool opencl_held(int index)
{
	(void)index;
	return false;
}

static void opencl_stream_wait_destroy(struct accel_stream_wait *g)
{
	if (!g)
		return;
	while (g->first)
		opencl_stream_wait_release(g);
	pthread_mutex_destroy(&g->lock);
	free(g);
}

static dicomm_result_t opencl_stream_wait_queue(struct accel_stream_wait *g,
						struct accel_stream *s)
{
	struct closing *c = calloc(1, sizeof(*c));
	int32_t error;

	if (!c)
		return FAIL(DICOMM_ERR_NO_MEMORY, "opencl:%d: out of memory",
			    g->index);
	c->user = cl.clCreateUserEvent(s->context->handle, &error);
	if (!c->user) {
		free(c);
		return FAIL_CL(error, g->index, "clCreateUserEvent");
	}
	error = cl.clEnqueueBarrierWithWaitList(s->queue, 1, &c->user, NULL);
	if (error) {
		cl.clReleaseEvent(c->user);
		free(c);
		return FAIL_CL(error, g->index, "clEnqueueBarrierWithWaitList");
	}
	pthread_mutex_lock(&g->lock);
	*g->last = c;
	g->last = &c->next;
	pthread_mutex_unlock(&g->lock);
	return queued(s, OPENCL_SUCCESS, "clFlush");
}

/* ---- work ---- */

static dicomm_result_t opencl_copy(struct accel_stream *s, void *dst,
				   const void *src, size_t bytes)
{
	if (!bytes)
		return DICOMM_SUCCESS;
	return queued(s,
		      cl.clEnqueueSVMMemcpy(s->queue, 0, dst, src, bytes, 0,
					    NULL, NULL),
		      "clEnqueueSVMMemcpy");
}

static dicomm_result_t kernel_new(struct accel_stream *s,
				  const struct launch *l, struct kernel **out)
{
	opencl_program program;
	struct kernel *k;
	int32_t error;

	TRY(program_get(s->context, l, &program));
	k = calloc(1, sizeof(*k));
	if (!k)
		return FAIL(DICOMM_ERR_NO_MEMORY, "opencl:%d: out of memory",
			    s->context->index);
	k->handle = cl.clCreateKernel(program, l->kernel, &error);
	if (!k->handle) {
		free(k);
		return FAIL_CL(error, s->context->index, l->kernel);
	}
	memcpy(k->name, l->kernel, sizeof(k->name));
	k->next = s->kernels;
	s->kernels = k;
	*out = k;
	return DICOMM_SUCCESS;
}

static dicomm_result_t kernel_get(struct accel_stream *s,
				  const struct launch *l, opencl_kernel *handle)
{
	struct kernel *k = s->kernels;

	while (k && strcmp(k->name, l->kernel) != 0)
		k = k->next;
	if (!k)
		TRY(kernel_new(s, l, &k));
	*handle = k->handle;
	return DICOMM_SUCCESS;
}

/* Kernels are made when they are first needed. To make one waits for no
 * queue. */
static dicomm_result_t opencl_prepare(struct accel_stream *s,
				      dicomm_datatype_t type)
{
	opencl_device device = devices[s->context->index].handle;

	if (type_plain(type, &(size_t){1}) != DICOMM_FLOAT64 ||
	    device_bits(device, OPENCL_DEVICE_DOUBLE_FP_CONFIG))
		return DICOMM_SUCCESS;
	log_set_last_error("its runtime compiles none");
	return DICOMM_ERR_UNSUPPORTED;
}

static dicomm_result_t launch_start(struct accel_stream *s, struct launch *l)
{
	const struct device *d = &devices[s->context->index];
	uint32_t block = d->cpu ? 1 : LAUNCH_BLOCK, blocks;
	size_t local = block, global;
	opencl_kernel kernel = NULL;
	int32_t error = OPENCL_SUCCESS;

	if (!l->items)
		return DICOMM_SUCCESS;
	TRY(kernel_get(s, l, &kernel));
	blocks = launch_grid(l, block, d->units * GROUPS_PER_UNIT);
	global = (size_t)blocks * block;
	for (int i = 0; i < l->nargs && !error; i++)
		error = i < l->npointers
				? cl.clSetKernelArgSVMPointer(
					  kernel, (uint32_t)i,
					  (void *)(uintptr_t)l->args[i])
				: cl.clSetKernelArg(kernel, (uint32_t)i, 8,
						    &l->args[i]);
	if (error)
		return FAIL_CL(error, s->context->index, "clSetKernelArg");
	return queued(s,
		      cl.clEnqueueNDRangeKernel(s->queue, kernel, 1, NULL,
						&global, &local, 0, NULL, NULL),
		      l->kernel);
}

static dicomm_result_t launch_none(const struct accel_stream *s,
				   const char *what)
{
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "opencl:%d: no kernel for %s",
		    s->context->index, what);
}

#include "src/accel/launch/work.h"

static const struct accel_work opencl_work = {
	.caps = opencl_caps,
	.owner = opencl_owner,
	.open = opencl_open,
	.open_beside = opencl_open_beside,
	.close = opencl_close,
	.prepare = opencl_prepare,
	.prepare_host_reduce = opencl_prepare_host_reduce,
	.event_create = opencl_event_create,
	.event_destroy = opencl_event_destroy,
	.event_record = opencl_event_record,
	.event_query = opencl_event_query,
	.wait_event = opencl_wait_event,
	.stream_wait_create = opencl_stream_wait_create,
	.stream_wait_destroy = opencl_stream_wait_destroy,
	.stream_wait_queue = opencl_stream_wait_queue,
	.stream_wait_release = opencl_stream_wait_release,
	.held = opencl_held,
	.copy = opencl_copy,
	.reduce = work_reduce,
	.fold = work_fold,
	.scale = work_scale,
	.divide = work_divide,
	.reach = opencl_reach,
	.allocation = opencl_allocation,
	.mem_export = opencl_export,
	.mem_import = opencl_mem_import,
	.mem_unimport = opencl_mem_unimport,
	.map_host = opencl_map_host,
	.unmap_host = opencl_unmap_host,
	.dmabuf = opencl_dmabuf,
};

const struct accel accel_opencl = {
	.name = "opencl",
	.count = opencl_count,
	.loaded = opencl_loaded,
	.describe = opencl_describe,
	.alloc = opencl_alloc,
	.free = opencl_free,
	.work = &opencl_work,
};
