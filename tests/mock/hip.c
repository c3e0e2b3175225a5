/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A mock of HIP's runtime: the functions of hip/api.h over devices that do not
 * exist. Descriptors are of larger blocks where MOCK_BLOCKS is in the
 * environment. It takes code objects for gfx90a and no others, those of this
 * build not where MOCK_IMAGES=refused is in the environment; of a kernel that
 * such an object has it runs the twin that the C compiler made. With MOCK_OLD
 * it is the one of ROCm 5.2, without what came later; with MOCK_BETWEEN that of
 * ROCm 6, where only HSA has dma-bufs, a library of its own that is opened when
 * this one starts.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/accel/hip/api.h"
#include "tests/mock/driver.h"
#include "tests/mock/graph.h"
#include "tests/mock/object.h"

struct ihipModule_t {
	const unsigned char *image;
	size_t bytes;
	struct ihipModule_t *next;
};

struct ihipModuleSymbol_t {
	char name[32];
	int nargs;
	struct ihipModuleSymbol_t *next;
};

#define HSA_ERROR 0x1000

#ifdef MOCK_OLD
#define MEMORY_HOST 0u
#define MEMORY_DEVICE HIP_MEMORY_DEVICE_5
#else
#define MEMORY_HOST 1u
#define MEMORY_DEVICE HIP_MEMORY_DEVICE
#endif

static _Thread_local int current;
/* What failed last: in ROCm 7 until someone asks, before until the next call.
 */
static _Thread_local int last;
static bool started;
/* They stay; reachable, so that no leak is seen in them. */
static struct ihipModule_t *modules;
static struct ihipModuleSymbol_t *functions;

#define BEGIN(call)                          \
	do {                                 \
		int begin_ = call;           \
		if (begin_)                  \
			return note(begin_); \
	} while (0)
#define CALL BEGIN((forget(), driver_call()))
#define SYNC_CALL BEGIN((forget(), driver_sync_call()))
#define EXPORT __attribute__((visibility("default")))

#define F(name, symbol, needed, parameters) hip_result symbol parameters;
HIP_FUNCTIONS(F)
#undef F
#define F(name, symbol, result, parameters) result symbol parameters;
HIP_MORE_FUNCTIONS(F)
#undef F

static void forget(void)
{
#if defined(MOCK_OLD) || defined(MOCK_BETWEEN)
	last = DRIVER_SUCCESS;
#endif
}

static int note(int error)
{
	if (error)
		last = error;
	return error;
}

EXPORT int mock_last_error(int error);
EXPORT int mock_last_error(int error)
{
	int before = last;

	last = error;
	return before;
}

static bool is_device(int device)
{
	return started && device >= 0 && device < DRIVER_DEVICES;
}

static struct driver_stream *stream_of(hip_stream s)
{
	return (struct driver_stream *)s;
}

static struct driver_event *event_of(hip_event e)
{
	return (struct driver_event *)e;
}

/* Which lies beside this one */
static int open_hsa(void)
{
#ifdef MOCK_BETWEEN
	char path[4096];
	const char *end;
	Dl_info self;

	if (!dladdr(&started, &self) || !(end = strrchr(self.dli_fname, '/')))
		return DRIVER_NOT_FOUND;
	snprintf(path, sizeof(path), "%.*s/libhsa.so",
		 (int)(end - self.dli_fname), self.dli_fname);
	return dlopen(path, RTLD_NOW | RTLD_LOCAL) ? DRIVER_SUCCESS
						   : DRIVER_NOT_FOUND;
#else
	return DRIVER_SUCCESS;
#endif
}

EXPORT hip_result hipInit(unsigned flags)
{
	CALL;
	if (flags)
		return DRIVER_INVALID_VALUE;
	started = true;
	return open_hsa();
}

EXPORT hip_result hipRuntimeGetVersion(int *version)
{
	CALL;
#ifdef MOCK_OLD
	*version = 50221153;
#elif defined(MOCK_BETWEEN)
	*version = 60241134;
#else
	*version = 70051831;
#endif
	return DRIVER_SUCCESS;
}

EXPORT hip_result hipPeekAtLastError(void)
{
	return last;
}

EXPORT hip_result hipGetLastError(void)
{
	int error = last;

	last = DRIVER_SUCCESS;
	return error;
}

EXPORT const char *hipGetErrorString(hip_result error)
{
	static _Thread_local char buffer[32];

	snprintf(buffer, sizeof(buffer), "mock error %d", error);
	return buffer;
}

EXPORT hip_result hipGetDeviceCount(int *n)
{
	CALL;
	*n = DRIVER_DEVICES;
	return DRIVER_SUCCESS;
}

EXPORT hip_result hipDeviceGetName(char *name, int len, hip_device d)
{
	CALL;
	if (!is_device(d) || len < 1)
		return DRIVER_INVALID_DEVICE;
	snprintf(name, (size_t)len, "mock GPU");
	return DRIVER_SUCCESS;
}

EXPORT hip_result hipDeviceGetPCIBusId(char *id, int len, int d)
{
	CALL;
	if (!is_device(d) || len < 13)
		return DRIVER_INVALID_DEVICE;
	snprintf(id, (size_t)len, "0000:%02x:00.0", 0x17 + d);
	return DRIVER_SUCCESS;
}

EXPORT hip_result hipDeviceGetAttribute(int *value, hip_device_attribute what,
					int d)
{
	CALL;
	if (!is_device(d) || what != HIP_MULTIPROCESSOR_COUNT)
		return DRIVER_INVALID_VALUE;
	*value = 2;
	return DRIVER_SUCCESS;
}

EXPORT hip_result hipSetDevice(int d)
{
	CALL;
	if (!is_device(d))
		return DRIVER_INVALID_DEVICE;
	current = d;
	return DRIVER_SUCCESS;
}

EXPORT hip_result hipGetDevice(int *d)
{
	CALL;
	*d = current;
	return DRIVER_SUCCESS;
}

EXPORT hip_result hipDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	CALL;
	*least = 1;
	*greatest = -1;
	return DRIVER_SUCCESS;
}

/* ---- memory ---- */

EXPORT hip_result hipMalloc(void **p, size_t bytes)
{
	SYNC_CALL;
	return driver_alloc(current, bytes, p);
}

EXPORT hip_result hipFree(void *p)
{
	return driver_free(p, false);
}

EXPORT hip_result hipMemGetAddressRange(void **base, size_t *bytes, void *p)
{
	struct driver_memory m;

	CALL;
	if (!driver_find(p, &m))
		return DRIVER_NOT_FOUND;
	*base = m.at;
	*bytes = m.bytes;
	return DRIVER_SUCCESS;
}

/* Of memory that it does not know ROCm 6 says just that, and is content. */
static int unknown_pointer(hip_pointer_attribute what, void *data)
{
#ifdef MOCK_BETWEEN
	memset(data, 0,
	       what == HIP_POINTER_IS_MANAGED ? sizeof(bool)
					      : sizeof(unsigned));
	return DRIVER_SUCCESS;
#else
	(void)what;
	(void)data;
	return note(DRIVER_INVALID_VALUE);
#endif
}

EXPORT hip_result hipPointerGetAttribute(void *data, hip_pointer_attribute what,
					 void *p)
{
	struct driver_memory m;

	CALL;
	if (!driver_find(p, &m))
		return unknown_pointer(what, data);
	switch (what) {
	case HIP_POINTER_MEMORY_TYPE:
		*(unsigned *)data = m.managed ? MEMORY_HOST : MEMORY_DEVICE;
		return DRIVER_SUCCESS;
	case HIP_POINTER_IS_MANAGED:
		*(bool *)data = m.managed;
		return DRIVER_SUCCESS;
	case HIP_POINTER_DEVICE_ORDINAL:
		*(int *)data = m.device;
		return DRIVER_SUCCESS;
	case HIP_POINTER_BUFFER_ID: /* of 32 bits here */
		*(uint32_t *)data = (uint32_t)m.id;
		return DRIVER_SUCCESS;
	default:
		return note(DRIVER_INVALID_VALUE);
	}
}

EXPORT hip_result hipHostMalloc(void **p, size_t bytes, unsigned flags)
{
	SYNC_CALL;
	if (flags & ~(unsigned)(HIP_HOST_PORTABLE | HIP_HOST_MAPPED |
				HIP_HOST_COHERENT))
		return DRIVER_INVALID_VALUE;
	return driver_host_alloc(p, bytes);
}

EXPORT hip_result hipExtMallocWithFlags(void **p, size_t bytes, unsigned flags)
{
	SYNC_CALL;
#ifdef MOCK_OLD
	(void)p;
	(void)bytes;
	(void)flags;
	return note(DRIVER_NOT_SUPPORTED);
#else
	if (flags != HIP_SIGNAL_MEMORY || bytes != 8)
		return DRIVER_INVALID_VALUE;
	return driver_host_alloc(p, bytes);
#endif
}

EXPORT hip_result hipHostRegister(void *p, size_t bytes, unsigned flags)
{
	SYNC_CALL;
	if (flags & ~(unsigned)(HIP_HOST_PORTABLE | HIP_HOST_MAPPED))
		return note(DRIVER_INVALID_VALUE);
	return note(driver_host_register(p, bytes, false));
}

EXPORT hip_result hipHostUnregister(void *p)
{
	return driver_host_unregister(p);
}

EXPORT hip_result hipHostGetDevicePointer(void **d, void *p, unsigned flags)
{
	CALL;
	if (flags || !driver_host_known(p, 1))
		return DRIVER_INVALID_VALUE;
	*d = p;
	return DRIVER_SUCCESS;
}

EXPORT hip_result hipDeviceCanAccessPeer(int *can, hip_device d,
					 hip_device other)
{
	CALL;
	if (!is_device(d) || !is_device(other))
		return note(DRIVER_INVALID_VALUE);
	*can = driver_can_reach(d, other);
	return DRIVER_SUCCESS;
}

EXPORT hip_result hipDeviceEnablePeerAccess(hip_device other, unsigned flags)
{
	CALL;
	if (!is_device(other) || flags)
		return note(DRIVER_INVALID_VALUE);
	return note(driver_reach(current, other));
}

EXPORT hip_result hipIpcGetMemHandle(hip_ipc *handle, void *p)
{
	CALL;
	return driver_ipc_get(handle->reserved, p);
}

EXPORT hip_result hipIpcOpenMemHandle(void **p, hip_ipc handle, unsigned flags)
{
	SYNC_CALL;
#ifdef MOCK_OLD
	if (flags != 0)
#else
	if (flags != 1)
#endif
		return note(DRIVER_INVALID_VALUE);
	return note(driver_ipc_open(current, handle.reserved, p));
}

EXPORT hip_result hipIpcCloseMemHandle(void *p)
{
	return driver_free(p, true);
}

/* ---- streams and events ---- */

EXPORT hip_result hipStreamCreateWithPriority(hip_stream *s, unsigned flags,
					      int priority)
{
	struct driver_stream *created = NULL;
	int error;

	CALL;
	if (flags & ~(unsigned)HIP_STREAM_NON_BLOCKING || priority > 1)
		return DRIVER_INVALID_VALUE;
	error = driver_stream_create(current, &created);
	*s = (hip_stream)created;
	return error;
}

EXPORT hip_result hipStreamDestroy(hip_stream s)
{
	return driver_stream_destroy(stream_of(s));
}

/* For tests: this stream is being captured. */
EXPORT void mock_capture(hip_stream s);
EXPORT void mock_capture(hip_stream s)
{
	graph_test(stream_of(s));
}

#ifndef MOCK_OLD
/* Debian's header of HIP has none of it. */
EXPORT hip_result hipThreadExchangeStreamCaptureMode(int *mode);
EXPORT hip_result hipThreadExchangeStreamCaptureMode(int *mode)
{
	driver_capture_mode(mode);
	return DRIVER_SUCCESS;
}
#endif

/* The stream of a thread, which is not mocked, is one of its device. */
EXPORT hip_result hipStreamIsCapturing(hip_stream s, hip_capture *state)
{
	CALL;
	if (s && driver_stream_device(stream_of(s)) != current)
		return note(DRIVER_INVALID_HANDLE);
	if (!s && driver_captures_blocking())
		return note(DRIVER_CAPTURE_IMPLICIT);
	*state = graph_state(stream_of(s));
	return DRIVER_SUCCESS;
}

EXPORT hip_result hipEventCreateWithFlags(hip_event *e, unsigned flags)
{
	struct driver_event *created = NULL;
	int error;

	CALL;
	/* By others nobody but the device is told of what was written. */
	if (flags != (HIP_EVENT_DISABLE_TIMING | HIP_EVENT_RELEASE_TO_SYSTEM))
		return note(DRIVER_INVALID_VALUE);
	error = driver_event_create(current, &created);
	*e = (hip_event)created;
	return error;
}

EXPORT hip_result hipEventDestroy(hip_event e)
{
	return driver_event_destroy(event_of(e));
}

EXPORT hip_result hipEventRecord(hip_event e, hip_stream s)
{
	CALL;
	return driver_event_record(event_of(e), stream_of(s), current);
}

EXPORT hip_result hipEventQuery(hip_event e)
{
	CALL;
	return driver_event_query(event_of(e));
}

EXPORT hip_result hipStreamWaitEvent(hip_stream s, hip_event e, unsigned flags)
{
	CALL;
	if (flags)
		return DRIVER_INVALID_VALUE;
	return driver_event_wait(stream_of(s), current, event_of(e));
}

EXPORT hip_result hipMemcpyAsync(void *dst, const void *src, size_t bytes,
				 hip_copy_kind kind, hip_stream s)
{
	CALL;
	if (kind != HIP_COPY_DEFAULT)
		return DRIVER_INVALID_VALUE;
	return driver_copy(stream_of(s), current, dst, src, bytes);
}

/* The old one takes only memory of a kind that it does not have. */
EXPORT hip_result hipStreamWaitValue64(hip_stream s, void *p, uint64_t value,
				       unsigned flags, uint64_t mask)
{
	CALL;
#ifdef MOCK_OLD
	(void)s;
	(void)p;
	(void)value;
	(void)flags;
	(void)mask;
	return note(DRIVER_INVALID_VALUE);
#else
	if (flags != HIP_WAIT_GTE || mask != UINT64_MAX)
		return note(DRIVER_INVALID_VALUE);
	return driver_wait_value(stream_of(s), current, p, (uint32_t)value);
#endif
}

struct call {
	hip_callback callback;
	hip_host_fn fn;
	hip_stream stream;
	void *arg;
};

static int run_call(void *arg)
{
	struct call *c = arg;

	if (c->fn)
		c->fn(c->arg);
	else
		c->callback(c->stream, DRIVER_SUCCESS, c->arg);
	free(c);
	return DRIVER_SUCCESS;
}

static int push_call(struct call call)
{
	return driver_push_new(stream_of(call.stream), current, run_call, &call,
			       sizeof(call));
}

EXPORT hip_result hipStreamAddCallback(hip_stream s, hip_callback fn, void *arg,
				       unsigned flags)
{
	CALL;
	if (flags)
		return DRIVER_INVALID_VALUE;
	return push_call(
		(struct call){.callback = fn, .stream = s, .arg = arg});
}

/* ---- kernels ---- */

EXPORT hip_result hipModuleLoadData(hip_module *module, const void *image)
{
	const char *images = getenv("MOCK_IMAGES");
	const Elf64_Ehdr *head = image;
	struct ihipModule_t *m;

	SYNC_CALL;
	if (memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
	    head->e_machine != OBJECT_AMDGPU)
		return note(DRIVER_INVALID_IMAGE);
	if ((head->e_flags & 0xff) != OBJECT_GFX90A ||
	    (head->e_shnum && images && !strcmp(images, "refused")))
		return note(HIP_NO_BINARY_FOR_GPU);
	m = calloc(1, sizeof(*m));
	if (!m)
		return DRIVER_OUT_OF_MEMORY;
	m->image = image;
	m->bytes = object_bytes(head);
	m->next = modules;
	modules = m;
	*module = m;
	return DRIVER_SUCCESS;
}

EXPORT hip_result hipModuleGetFunction(hip_function *function, hip_module m,
				       const char *name)
{
	struct ihipModuleSymbol_t *f;

	SYNC_CALL;
	if (!object_has(m->image, m->bytes, name))
		return DRIVER_NOT_FOUND;
	f = calloc(1, sizeof(*f));
	if (!f)
		return DRIVER_OUT_OF_MEMORY;
	snprintf(f->name, sizeof(f->name), "%s", name);
	f->nargs = object_arguments(name);
	f->next = functions;
	functions = f;
	*function = f;
	return DRIVER_SUCCESS;
}

struct block_run {
	const struct ihipModuleSymbol_t *function;
	uint64_t args[OBJECT_ARGS];
};

static int run_kernel(void *arg)
{
	struct block_run *r = arg;
	int error = object_run(r->function->name, r->args);

	free(r);
	return error;
}

EXPORT hip_result hipModuleLaunchKernel(hip_function f, unsigned gx,
					unsigned gy, unsigned gz, unsigned bx,
					unsigned by, unsigned bz,
					unsigned shared, hip_stream s,
					void **args, void **extra)
{
	struct block_run r = {.function = f};

	CALL;
	if (!gx || gy != 1 || gz != 1 || bx != 256 || by != 1 || bz != 1 ||
	    shared || !args || extra)
		return DRIVER_INVALID_VALUE;
	for (int i = 0; i < f->nargs; i++)
		memcpy(&r.args[i], args[i], sizeof(uint64_t));
	return r.args[f->nargs - 1] != (uint64_t)gx * bx
		       ? DRIVER_INVALID_VALUE
		       : driver_push_new(stream_of(s), current, run_kernel, &r,
					 sizeof(r));
}

/* ---- what differs with the age ---- */

#ifdef MOCK_OLD
EXPORT int hipGetStreamDeviceId(hip_stream s)
{
	return driver_stream_device(stream_of(s));
}
#else
EXPORT hip_result hipStreamGetDevice(hip_stream s, hip_device *d)
{
	CALL;
	*d = driver_stream_device(stream_of(s));
	return *d < 0 ? DRIVER_INVALID_HANDLE : DRIVER_SUCCESS;
}

EXPORT hip_result hipLaunchHostFunc(hip_stream s, hip_host_fn fn, void *arg)
{
	CALL;
	return push_call((struct call){.fn = fn, .stream = s, .arg = arg});
}

/* ---- graphs ---- */

/* What users call and the library does not */
EXPORT hip_result hipStreamBeginCapture(hip_stream s, int mode);
EXPORT hip_result hipStreamBeginCapture(hip_stream s, int mode)
{
	CALL;
	return note(graph_begin(stream_of(s), mode));
}

EXPORT hip_result hipStreamEndCapture(hip_stream s, hip_graph *graph);
EXPORT hip_result hipStreamEndCapture(hip_stream s, hip_graph *graph)
{
	CALL;
	return note(graph_end(stream_of(s), (struct graph **)graph));
}

EXPORT hip_result hipGraphInstantiateWithFlags(void **exec, hip_graph graph,
					       unsigned long long flags);
EXPORT hip_result hipGraphInstantiateWithFlags(void **exec, hip_graph graph,
					       unsigned long long flags)
{
	SYNC_CALL;
	if (flags)
		return note(DRIVER_INVALID_VALUE);
	return note(graph_instantiate((struct graph *)graph,
				      (struct graph_exec **)exec));
}

EXPORT hip_result hipGraphExecUpdate(void *exec, hip_graph graph,
				     hip_graph_node *node, int *result);
EXPORT hip_result hipGraphExecUpdate(void *exec, hip_graph graph,
				     hip_graph_node *node, int *result)
{
	CALL;
	if (!node || !result)
		return note(DRIVER_INVALID_VALUE);
	return note(graph_update(exec, (struct graph *)graph));
}

EXPORT hip_result hipGraphLaunch(void *exec, hip_stream s);
EXPORT hip_result hipGraphLaunch(void *exec, hip_stream s)
{
	CALL;
	return note(graph_launch(exec, stream_of(s), current));
}

EXPORT hip_result hipGraphExecDestroy(void *exec);
EXPORT hip_result hipGraphExecDestroy(void *exec)
{
	return note(graph_exec_destroy(exec));
}

EXPORT hip_result hipGraphDestroy(hip_graph graph);
EXPORT hip_result hipGraphDestroy(hip_graph graph)
{
	return note(graph_destroy((struct graph *)graph));
}

EXPORT hip_result hipStreamGetCaptureInfo_v2(hip_stream s, hip_capture *state,
					     unsigned long long *capture,
					     hip_graph *graph,
					     const hip_graph_node **nodes,
					     size_t *n)
{
	uint64_t number = 0;
	int error;

	CALL;
	error = graph_info(stream_of(s), state, &number, (struct graph **)graph,
			   (struct graph_node *const **)nodes, n);
	if (capture)
		*capture = number;
	return note(error);
}

EXPORT hip_result hipStreamUpdateCaptureDependencies(hip_stream s,
						     hip_graph_node *nodes,
						     size_t n, unsigned flags)
{
	CALL;
	if (flags > 1)
		return note(DRIVER_INVALID_VALUE);
	return note(graph_follow(stream_of(s),
				 (struct graph_node *const *)nodes, n, flags));
}

EXPORT hip_result hipGraphAddHostNode(hip_graph_node *node, hip_graph graph,
				      const hip_graph_node *after, size_t n,
				      const hip_host_node *host)
{
	const struct call c = {.fn = host->fn, .arg = host->userData};

	CALL;
	return note(graph_add((struct graph *)graph, (struct graph_node **)node,
			      (struct graph_node *const *)after, n, current,
			      run_call, &c, sizeof(c)));
}

EXPORT hip_result hipGraphRetainUserObject(hip_graph graph,
					   hip_user_object object,
					   unsigned refs, unsigned flags)
{
	CALL;
	if (flags > 1)
		return note(DRIVER_INVALID_VALUE);
	return note(graph_keep((struct graph *)graph,
			       (struct graph_object *)object, refs, flags));
}

EXPORT hip_result hipUserObjectCreate(hip_user_object *object, void *ptr,
				      hip_host_fn destroy, unsigned refs,
				      unsigned flags)
{
	CALL;
	if (flags != 1)
		return note(DRIVER_INVALID_VALUE);
	return note(graph_object_create((struct graph_object **)object, ptr,
					destroy, refs));
}

EXPORT hip_result hipUserObjectRelease(hip_user_object object, unsigned refs)
{
	return note(graph_object_release((struct graph_object *)object, refs));
}

#define BLOCK_BYTES (2 << 20)

/* Of all the memory that an allocation was cut from, whose end it is */
static int block_fd(int *fd, const void *p, size_t bytes)
{
	struct driver_memory m;

	if (!driver_find(p, &m))
		return DRIVER_INVALID_VALUE;
	*fd = memfd_create("block", MFD_CLOEXEC);
	return *fd < 0 || pwrite(*fd, m.seen + ((const char *)p - m.at), bytes,
				 BLOCK_BYTES) != (ssize_t)bytes
		       ? DRIVER_OUT_OF_MEMORY
		       : DRIVER_SUCCESS;
}

static int hsa_export(const void *p, size_t bytes, int *fd, uint64_t *offset)
{
	if (driver_call())
		return HSA_ERROR;
	*offset = getenv("MOCK_BLOCKS") ? BLOCK_BYTES : 0;
	return (*offset ? block_fd(fd, p, bytes)
			: driver_range_fd(fd, (void *)(uintptr_t)p, bytes))
		       ? HSA_ERROR
		       : 0;
}
#ifdef MOCK_BETWEEN
/* For the other library, see hsa.c */
EXPORT int mock_hsa_export(const void *p, size_t bytes, int *fd,
			   uint64_t *offset);
EXPORT int mock_hsa_export(const void *p, size_t bytes, int *fd,
			   uint64_t *offset)
{
	return hsa_export(p, bytes, fd, offset);
}
#else
/* As of memory that it does not know, but with MOCK_HSA */
EXPORT int hsa_amd_portable_export_dmabuf(const void *p, size_t bytes, int *fd,
					  uint64_t *offset)
{
	return getenv("MOCK_HSA") ? hsa_export(p, bytes, fd, offset)
				  : HSA_ERROR;
}

EXPORT hip_result hipMemGetHandleForAddressRange(void *handle, void *p,
						 size_t bytes, int type,
						 unsigned long long flags)
{
	CALL;
	if (type != HIP_RANGE_DMA_BUF_FD || flags)
		return note(DRIVER_INVALID_VALUE);
	if (getenv("MOCK_BLOCKS"))
		return note(block_fd(handle, p, bytes));
	return note(driver_range_fd(handle, p, bytes));
}
#endif
#endif
