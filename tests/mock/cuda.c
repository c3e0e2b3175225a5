/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A mock of the CUDA driver: the functions of cuda/api.h over devices that do
 * not exist, as strict as the real one about contexts, handles and alignment.
 * Kernels are those of the PTX that it is given, run by the interpreter. With
 * MOCK_OLD it is a driver of CUDA 10.0, without what came later; with
 * MOCK_BETWEEN one of CUDA 11.6, whose streams wait for memory, and write it,
 * by the first version of those functions.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/accel/cuda/api.h"
#include "tests/kernels/ptx.h"
#include "tests/mock/driver.h"
#include "tests/mock/graph.h"
#include "tests/mock/object.h"

#define DEPTH 8

struct CUctx_st {
	int device;
};

struct CUmod_st {
	struct ptx *ptx; /* NULL: an object of the mock compiler */
	const char *text;
	struct CUmod_st *next;
};

struct CUfunc_st {
	struct CUmod_st *module;
	char name[64];
	int nargs;
	struct CUfunc_st *next;
};

/* The mock of NVRTC knows the first of these devices and not the other. */
#define COMPUTE_MAJOR 8
static const int minors[DRIVER_DEVICES] = {0, 7};

/* Old drivers have the functions, but they fail where an administrator has not
 * allowed it; new ones have given them up for the second version. */
#ifdef MOCK_BETWEEN
static const bool has_mem_ops_v1 = true;
#else
static const bool has_mem_ops_v1 = false;
#endif

static struct CUctx_st contexts[DRIVER_DEVICES] = {{0}, {1}};
/* That the user has made, of either device */
static struct CUctx_st others[DRIVER_DEVICES] = {{0}, {1}};
static bool retained[DRIVER_DEVICES];
static _Thread_local cuda_context stack[DEPTH];
static _Thread_local int depth;
static bool started;
/* They stay; reachable, so that no leak is seen in them. */
static struct CUmod_st *modules;
static struct CUfunc_st *functions;

/* Calls that need nothing, a driver that was started, a current context */
#define BEGIN(call)                    \
	do {                           \
		int begin_ = call;     \
		if (begin_)            \
			return begin_; \
	} while (0)
#define CALL BEGIN(driver_call())
#define STARTED                                    \
	do {                                       \
		CALL;                              \
		if (!started)                      \
			return DRIVER_NOT_STARTED; \
	} while (0)
/* Of calls that take something back, too */
#define IN_CONTEXT                                     \
	do {                                           \
		if (!depth)                            \
			return DRIVER_INVALID_CONTEXT; \
	} while (0)
#define CURRENT             \
	do {                \
		CALL;       \
		IN_CONTEXT; \
	} while (0)
#define CURRENT_SYNC                       \
	do {                               \
		BEGIN(driver_sync_call()); \
		IN_CONTEXT;                \
	} while (0)
#define EXPORT __attribute__((visibility("default")))

#define F(name, symbol, needed, parameters) cuda_result symbol parameters;
CUDA_FUNCTIONS(F)
#undef F

static int device(void)
{
	return depth ? stack[depth - 1]->device : 0;
}

static bool is_device(cuda_device d)
{
	return d >= 0 && d < DRIVER_DEVICES;
}

static void *address(cuda_pointer p)
{
	return (void *)(uintptr_t)p;
}

static struct driver_stream *stream_of(cuda_stream s)
{
	return (struct driver_stream *)s;
}

static struct driver_event *event_of(cuda_event e)
{
	return (struct driver_event *)e;
}

EXPORT cuda_result cuInit(unsigned flags)
{
	CALL;
	if (flags)
		return DRIVER_INVALID_VALUE;
	started = true;
	return DRIVER_SUCCESS;
}

EXPORT cuda_result cuDriverGetVersion(int *version)
{
	CALL;
#ifdef MOCK_OLD
	*version = 10000;
#elif defined(MOCK_BETWEEN)
	*version = 11060;
#else
	*version = 12040;
#endif
	return DRIVER_SUCCESS;
}

EXPORT cuda_result cuGetErrorString(cuda_result error, const char **text)
{
	static _Thread_local char buffer[32];

	snprintf(buffer, sizeof(buffer), "mock error %d", error);
	*text = buffer;
	return DRIVER_SUCCESS;
}

EXPORT cuda_result cuDeviceGetCount(int *n)
{
	STARTED;
	*n = DRIVER_DEVICES;
	return DRIVER_SUCCESS;
}

EXPORT cuda_result cuDeviceGet(cuda_device *d, int ordinal)
{
	STARTED;
	if (!is_device(ordinal))
		return DRIVER_INVALID_DEVICE;
	*d = ordinal;
	return DRIVER_SUCCESS;
}

EXPORT cuda_result cuDeviceGetName(char *name, int len, cuda_device d)
{
	STARTED;
	if (!is_device(d) || len < 1)
		return DRIVER_INVALID_VALUE;
	snprintf(name, (size_t)len, "mock GPU");
	return DRIVER_SUCCESS;
}

EXPORT cuda_result cuDeviceGetPCIBusId(char *id, int len, cuda_device d)
{
	STARTED;
	if (!is_device(d) || len < 13)
		return DRIVER_INVALID_VALUE;
	snprintf(id, (size_t)len, "0000:%02X:00.0", 0x17 + d);
	return DRIVER_SUCCESS;
}

/* For whom what NICs write is ordered: "owner", "all", or NULL. */
static int rdma_order(const char *whom)
{
	if (!whom)
		return 0;
	return strcmp(whom, "all") ? CUDA_RDMA_ORDERED_FOR_OWNER
				   : CUDA_RDMA_ORDERED_FOR_ALL;
}

EXPORT cuda_result cuDeviceGetAttribute(int *value, cuda_device_attribute what,
					cuda_device d)
{
	STARTED;
	if (!is_device(d))
		return DRIVER_INVALID_VALUE;
	switch (what) {
	case CUDA_MULTIPROCESSOR_COUNT:
		*value = 2;
		return DRIVER_SUCCESS;
	case CUDA_COMPUTE_MAJOR:
		*value = COMPUTE_MAJOR;
		return DRIVER_SUCCESS;
	case CUDA_COMPUTE_MINOR:
		*value = minors[d];
		return DRIVER_SUCCESS;
	case CUDA_DMA_BUF_SUPPORTED:
		*value = 1;
		return DRIVER_SUCCESS;
	case CUDA_RDMA_WRITES_ORDERING:
		*value = rdma_order(getenv("MOCK_CUDA_RDMA_ORDERED"));
		return DRIVER_SUCCESS;
	case CUDA_MEM_OPS_V1:
		*value = has_mem_ops_v1;
		return DRIVER_SUCCESS;
	default:
		return DRIVER_INVALID_VALUE;
	}
}

EXPORT cuda_result cuDevicePrimaryCtxRetain(cuda_context *c, cuda_device d)
{
	BEGIN(driver_sync_call());
	if (!is_device(d))
		return DRIVER_INVALID_VALUE;
	retained[d] = true;
	*c = &contexts[d];
	return DRIVER_SUCCESS;
}

EXPORT cuda_result cuCtxPushCurrent_v2(cuda_context c)
{
	STARTED;
	if (!c || !retained[c->device] || depth == DEPTH)
		return DRIVER_INVALID_CONTEXT;
	stack[depth++] = c;
	return DRIVER_SUCCESS;
}

EXPORT cuda_result cuCtxPopCurrent_v2(cuda_context *c)
{
	if (!depth)
		return DRIVER_INVALID_CONTEXT;
	*c = stack[--depth];
	return DRIVER_SUCCESS;
}

/* No backend asks that; NCCL's interface does. */
EXPORT cuda_result cuCtxGetDevice(cuda_device *d);
EXPORT cuda_result cuCtxGetDevice(cuda_device *d)
{
	if (!started)
		return DRIVER_NOT_STARTED;
	IN_CONTEXT;
	*d = device();
	return DRIVER_SUCCESS;
}

EXPORT cuda_result cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	CURRENT;
	*least = 0;
	*greatest = -5;
	return DRIVER_SUCCESS;
}

/* ---- memory ---- */

EXPORT cuda_result cuMemAlloc_v2(cuda_pointer *p, size_t bytes)
{
	void *at = NULL;
	int error;

	CURRENT_SYNC;
	error = driver_alloc(device(), bytes, &at);
	*p = (uintptr_t)at;
	return error;
}

EXPORT cuda_result cuMemFree_v2(cuda_pointer p)
{
	IN_CONTEXT;
	return driver_free(address(p), false);
}

EXPORT cuda_result cuMemGetAddressRange_v2(cuda_pointer *base, size_t *bytes,
					   cuda_pointer p)
{
	struct driver_memory m;

	CURRENT;
	if (!driver_find(address(p), &m))
		return DRIVER_NOT_FOUND;
	if (m.managed)
		return DRIVER_INVALID_VALUE;
	*base = (uintptr_t)m.at;
	*bytes = m.bytes;
	return DRIVER_SUCCESS;
}

static int one_attribute(void *data, cuda_pointer_attribute what,
			 const struct driver_memory *m)
{
	switch (what) {
	case CUDA_POINTER_CONTEXT:
		*(cuda_context *)data =
			m->apart ? &others[m->device] : &contexts[m->device];
		return DRIVER_SUCCESS;
	case CUDA_POINTER_MEMORY_TYPE:
		*(unsigned *)data = CUDA_MEMORY_DEVICE;
		return DRIVER_SUCCESS;
	case CUDA_POINTER_IS_MANAGED:
		*(unsigned *)data = m->managed;
		return DRIVER_SUCCESS;
	case CUDA_POINTER_DEVICE_ORDINAL:
		*(int *)data = m->device;
		return DRIVER_SUCCESS;
	case CUDA_POINTER_BUFFER_ID:
		*(unsigned long long *)data = m->id;
		return DRIVER_SUCCESS;
	default:
		return DRIVER_INVALID_VALUE;
	}
}

EXPORT cuda_result cuPointerGetAttribute(void *data,
					 cuda_pointer_attribute what,
					 cuda_pointer p)
{
	struct driver_memory m;

	CURRENT;
	if (!driver_find(address(p), &m))
		return DRIVER_INVALID_VALUE;
	return one_attribute(data, what, &m);
}

/* Of an address that the driver does not know it tells nothing. */
EXPORT cuda_result cuPointerGetAttributes(unsigned n,
					  cuda_pointer_attribute *what,
					  void **data, cuda_pointer p)
{
	struct driver_memory m;

	STARTED;
	if (!driver_find(address(p), &m))
		return DRIVER_SUCCESS;
	for (unsigned i = 0; i < n; i++)
		BEGIN(one_attribute(data[i], what[i], &m));
	return DRIVER_SUCCESS;
}

EXPORT cuda_result cuPointerSetAttribute(const void *value,
					 cuda_pointer_attribute what,
					 cuda_pointer p)
{
	CURRENT;
	return value && what == CUDA_POINTER_SYNC_MEMOPS &&
			       driver_sync(address(p))
		       ? DRIVER_SUCCESS
		       : DRIVER_INVALID_VALUE;
}

EXPORT cuda_result cuMemHostAlloc(void **p, size_t bytes, unsigned flags)
{
	CURRENT_SYNC;
	if (flags & ~(unsigned)(CUDA_HOST_PORTABLE | CUDA_HOST_DEVICEMAP))
		return DRIVER_INVALID_VALUE;
	return driver_host_alloc(p, bytes);
}

EXPORT cuda_result cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags)
{
	CURRENT_SYNC;
	if (flags & ~(unsigned)(CUDA_HOST_PORTABLE | CUDA_HOST_DEVICEMAP |
				CUDA_HOST_READ_ONLY))
		return DRIVER_INVALID_VALUE;
	return driver_host_register(p, bytes, flags & CUDA_HOST_READ_ONLY);
}

EXPORT cuda_result cuMemHostUnregister(void *p)
{
	IN_CONTEXT;
	return driver_host_unregister(p);
}

EXPORT cuda_result cuMemHostGetDevicePointer_v2(cuda_pointer *d, void *p,
						unsigned flags)
{
	CURRENT;
	/* The manual promises nothing for what is in the middle of it. */
	if (flags || !driver_host_begins(p))
		return DRIVER_INVALID_VALUE;
	*d = (uintptr_t)p;
	return DRIVER_SUCCESS;
}

EXPORT cuda_result cuDeviceCanAccessPeer(int *can, cuda_device d,
					 cuda_device other)
{
	CALL;
	if (!is_device(d) || !is_device(other))
		return DRIVER_INVALID_VALUE;
	*can = driver_can_reach(d, other);
	return DRIVER_SUCCESS;
}

EXPORT cuda_result cuCtxEnablePeerAccess(cuda_context other, unsigned flags)
{
	CURRENT;
	if (!other || flags)
		return DRIVER_INVALID_VALUE;
	return driver_reach(device(), other->device);
}

EXPORT cuda_result cuIpcGetMemHandle(cuda_ipc *handle, cuda_pointer p)
{
	CURRENT;
	return driver_ipc_get(handle->reserved, address(p));
}

static cuda_result ipc_open(cuda_pointer *p, cuda_ipc handle, unsigned flags)
{
	void *at = NULL;
	int error;

	CURRENT_SYNC;
	if (flags != CUDA_IPC_LAZY_PEER_ACCESS)
		return DRIVER_INVALID_VALUE;
	error = driver_ipc_open(device(), handle.reserved, &at);
	*p = (uintptr_t)at;
	return error;
}

EXPORT cuda_result cuIpcOpenMemHandle(cuda_pointer *p, cuda_ipc handle,
				      unsigned flags)
{
	return ipc_open(p, handle, flags);
}

EXPORT cuda_result cuIpcCloseMemHandle(cuda_pointer p)
{
	IN_CONTEXT;
	return driver_free(address(p), true);
}

/* ---- streams and events ---- */

EXPORT cuda_result cuStreamCreateWithPriority(cuda_stream *s, unsigned flags,
					      int priority)
{
	struct driver_stream *created = NULL;
	int error;

	CURRENT;
	if (flags & ~(unsigned)CUDA_STREAM_NON_BLOCKING || priority > 0)
		return DRIVER_INVALID_VALUE;
	error = driver_stream_create(device(), &created);
	*s = (cuda_stream)created;
	return error;
}

EXPORT cuda_result cuStreamDestroy_v2(cuda_stream s)
{
	IN_CONTEXT;
	return driver_stream_destroy(stream_of(s));
}

EXPORT cuda_result cuStreamGetCtx(cuda_stream s, cuda_context *c)
{
	int d;

	STARTED;
	d = driver_stream_device(stream_of(s));
	if (d < 0)
		return DRIVER_INVALID_HANDLE;
	*c = &contexts[d];
	return DRIVER_SUCCESS;
}

EXPORT cuda_result cuEventCreate(cuda_event *e, unsigned flags)
{
	struct driver_event *created = NULL;
	int error;

	CURRENT;
	if (flags != CUDA_EVENT_DISABLE_TIMING)
		return DRIVER_INVALID_VALUE;
	error = driver_event_create(device(), &created);
	*e = (cuda_event)created;
	return error;
}

EXPORT cuda_result cuEventDestroy_v2(cuda_event e)
{
	IN_CONTEXT;
	return driver_event_destroy(event_of(e));
}

EXPORT cuda_result cuEventRecord(cuda_event e, cuda_stream s)
{
	CURRENT;
	return driver_event_record(event_of(e), stream_of(s), device());
}

EXPORT cuda_result cuEventQuery(cuda_event e)
{
	STARTED;
	return driver_event_query(event_of(e));
}

EXPORT cuda_result cuStreamWaitEvent(cuda_stream s, cuda_event e,
				     unsigned flags)
{
	CURRENT;
	if (flags)
		return DRIVER_INVALID_VALUE;
	return driver_event_wait(stream_of(s), device(), event_of(e));
}

EXPORT cuda_result cuMemcpyAsync(cuda_pointer dst, cuda_pointer src,
				 size_t bytes, cuda_stream s)
{
	CURRENT;
	return driver_copy(stream_of(s), device(), address(dst), address(src),
			   bytes);
}

struct call {
	cuda_host_fn fn;
	void *arg;
};

static int run_call(void *arg)
{
	struct call *c = arg;

	c->fn(c->arg);
	free(c);
	return DRIVER_SUCCESS;
}

EXPORT cuda_result cuLaunchHostFunc(cuda_stream s, cuda_host_fn fn, void *arg)
{
	const struct call c = {.fn = fn, .arg = arg};

	CURRENT;
	return driver_push_new(stream_of(s), device(), run_call, &c, sizeof(c));
}

/* For tests: this stream is being captured. */
EXPORT void mock_capture(cuda_stream s);
EXPORT void mock_capture(cuda_stream s)
{
	graph_test(stream_of(s));
}

/* Handles that stand for a stream of each context, and of each thread in it,
 * are not mocked; this asks for the context that those would need. */
EXPORT cuda_result cuStreamIsCapturing(cuda_stream s, cuda_capture *state)
{
	CURRENT;
	if (!s && driver_captures_blocking())
		return DRIVER_CAPTURE_IMPLICIT;
	*state = graph_state(stream_of(s));
	return DRIVER_SUCCESS;
}

/* ---- kernels ---- */

/* For this device, or an older one of its generation */
static int object_load(const Elf64_Ehdr *head)
{
	int arch = 10 * COMPUTE_MAJOR + minors[device()];

	if (head->e_machine != OBJECT_CUDA)
		return DRIVER_INVALID_IMAGE;
	return (int)head->e_flags <= arch ? DRIVER_SUCCESS
					  : CUDA_NO_BINARY_FOR_GPU;
}

static int ptx_take(struct CUmod_st *m)
{
	const char *images = getenv("MOCK_IMAGES");
	char why[256];

	if (images && !strcmp(images, "refused"))
		return CUDA_UNSUPPORTED_PTX;
	m->ptx = ptx_load(m->text, why, sizeof(why));
	if (m->ptx)
		return DRIVER_SUCCESS;
	fprintf(stderr, "mock: %s\n", why);
	return CUDA_INVALID_PTX;
}

EXPORT cuda_result cuModuleLoadData(cuda_module *module, const void *image)
{
	struct CUmod_st *m;
	int error;

	CURRENT_SYNC;
	m = calloc(1, sizeof(*m));
	if (!m)
		return DRIVER_OUT_OF_MEMORY;
	m->text = image;
	error = memcmp(image, ELFMAG, SELFMAG) != 0 ? ptx_take(m)
						    : object_load(image);
	if (error) {
		free(m);
		return error;
	}
	m->next = modules;
	modules = m;
	*module = m;
	return DRIVER_SUCCESS;
}

/* Parameters of a kernel; 0: there is no such kernel. */
static int object_parameters(const void *object, const char *name)
{
	return object_has(object, object_bytes(object), name)
		       ? object_arguments(name)
		       : 0;
}

static int ptx_parameters(const char *text, const char *name)
{
	char entry[64];
	const char *at, *end;
	int n = 0;

	snprintf(entry, sizeof(entry), ".entry %s(", name);
	at = strstr(text, entry);
	end = at ? strchr(at, ')') : NULL;
	while (at && (at = strstr(at + 1, ".param")) && at < end)
		n++;
	return n;
}

EXPORT cuda_result cuModuleGetFunction(cuda_function *function,
				       cuda_module module, const char *name)
{
	struct CUfunc_st *f;
	int n;

	CURRENT_SYNC;
	n = module->ptx ? ptx_parameters(module->text, name)
			: object_parameters(module->text, name);
	if (!n || n > OBJECT_ARGS || strlen(name) >= sizeof(f->name))
		return DRIVER_NOT_FOUND;
	f = calloc(1, sizeof(*f));
	if (!f)
		return DRIVER_OUT_OF_MEMORY;
	strcpy(f->name, name);
	f->module = module;
	f->nargs = n;
	f->next = functions;
	functions = f;
	*function = f;
	return DRIVER_SUCCESS;
}

struct block_run {
	const struct CUfunc_st *function;
	uint64_t args[OBJECT_ARGS];
	unsigned blocks, block;
};

static int run_kernel(void *arg)
{
	struct block_run *r = arg;
	char why[256];
	bool ran;

	if (!r->function->module->ptx) {
		int error = object_run(r->function->name, r->args);

		free(r);
		return error;
	}
	ran = ptx_run(r->function->module->ptx, r->function->name, r->args,
		      r->function->nargs, r->blocks, r->block, driver_translate,
		      why, sizeof(why));
	if (!ran)
		fprintf(stderr, "mock: %s\n", why);
	free(r);
	return ran ? DRIVER_SUCCESS : DRIVER_ILLEGAL_ADDRESS;
}

EXPORT cuda_result cuLaunchKernel(cuda_function f, unsigned gx, unsigned gy,
				  unsigned gz, unsigned bx, unsigned by,
				  unsigned bz, unsigned shared, cuda_stream s,
				  void **args, void **extra)
{
	struct block_run r = {.function = f, .blocks = gx, .block = bx};

	CURRENT;
	if (!gx || gy != 1 || gz != 1 || !bx || bx > 1024 || by != 1 ||
	    bz != 1 || shared || !args || extra)
		return DRIVER_INVALID_VALUE;
	for (int i = 0; i < f->nargs; i++)
		memcpy(&r.args[i], args[i], sizeof(uint64_t));
	return driver_push_new(stream_of(s), device(), run_kernel, &r,
			       sizeof(r));
}

static int wait_value(cuda_stream s, cuda_pointer p, uint32_t value,
		      unsigned flags)
{
	CURRENT;
	if (flags != CUDA_WAIT_GEQ)
		return DRIVER_INVALID_VALUE;
	return driver_wait_value(stream_of(s), device(), address(p), value);
}

EXPORT cuda_result cuStreamWaitValue32(cuda_stream s, cuda_pointer p,
				       uint32_t value, unsigned flags)
{
	return has_mem_ops_v1 ? wait_value(s, p, value, flags)
			      : DRIVER_NOT_SUPPORTED;
}

/* The default stream is not mocked as far as others wait for it; so it is not
 * known what a write on it would be behind. */
static int write_value(cuda_stream s, cuda_pointer p, uint32_t value,
		       unsigned flags)
{
	CURRENT;
	if (!s || flags != CUDA_WRITE_DEFAULT)
		return DRIVER_INVALID_VALUE;
	return driver_write_value(stream_of(s), device(), address(p), value);
}

EXPORT cuda_result cuStreamWriteValue32(cuda_stream s, cuda_pointer p,
					uint32_t value, unsigned flags)
{
	return has_mem_ops_v1 ? write_value(s, p, value, flags)
			      : DRIVER_NOT_SUPPORTED;
}

/* ---- what came later ---- */

#ifndef MOCK_OLD
EXPORT cuda_result cuThreadExchangeStreamCaptureMode(cuda_capture_mode *mode)
{
	driver_capture_mode(mode);
	return DRIVER_SUCCESS;
}

EXPORT cuda_result cuIpcOpenMemHandle_v2(cuda_pointer *p, cuda_ipc handle,
					 unsigned flags)
{
	return ipc_open(p, handle, flags);
}

/* ---- graphs ---- */

/* Of graphs, what users call and the library does not */
EXPORT cuda_result cuStreamBeginCapture_v2(cuda_stream s, int mode);
EXPORT cuda_result cuStreamBeginCapture_v2(cuda_stream s, int mode)
{
	CURRENT;
	return graph_begin(stream_of(s), mode);
}

EXPORT cuda_result cuStreamEndCapture(cuda_stream s, cuda_graph *graph);
EXPORT cuda_result cuStreamEndCapture(cuda_stream s, cuda_graph *graph)
{
	CURRENT;
	return graph_end(stream_of(s), (struct graph **)graph);
}

EXPORT cuda_result cuGraphInstantiateWithFlags(void **exec, cuda_graph graph,
					       unsigned long long flags);
EXPORT cuda_result cuGraphInstantiateWithFlags(void **exec, cuda_graph graph,
					       unsigned long long flags)
{
	CURRENT_SYNC;
	if (flags)
		return DRIVER_INVALID_VALUE;
	return graph_instantiate((struct graph *)graph,
				 (struct graph_exec **)exec);
}

EXPORT cuda_result cuGraphExecUpdate_v2(void *exec, cuda_graph graph,
					void *result);
EXPORT cuda_result cuGraphExecUpdate_v2(void *exec, cuda_graph graph,
					void *result)
{
	CURRENT;
	if (!result)
		return DRIVER_INVALID_VALUE;
	return graph_update(exec, (struct graph *)graph);
}

EXPORT cuda_result cuGraphLaunch(void *exec, cuda_stream s);
EXPORT cuda_result cuGraphLaunch(void *exec, cuda_stream s)
{
	CURRENT;
	return graph_launch(exec, stream_of(s), device());
}

EXPORT cuda_result cuGraphExecDestroy(void *exec);
EXPORT cuda_result cuGraphExecDestroy(void *exec)
{
	IN_CONTEXT;
	return graph_exec_destroy(exec);
}

EXPORT cuda_result cuGraphDestroy(cuda_graph graph);
EXPORT cuda_result cuGraphDestroy(cuda_graph graph)
{
	IN_CONTEXT;
	return graph_destroy((struct graph *)graph);
}

EXPORT cuda_result cuStreamGetCaptureInfo_v2(cuda_stream s, cuda_capture *state,
					     uint64_t *capture,
					     cuda_graph *graph,
					     const cuda_graph_node **nodes,
					     size_t *n)
{
	CURRENT;
	return graph_info(stream_of(s), state, capture, (struct graph **)graph,
			  (struct graph_node *const **)nodes, n);
}

EXPORT cuda_result cuStreamUpdateCaptureDependencies(cuda_stream s,
						     cuda_graph_node *nodes,
						     size_t n, unsigned flags)
{
	CURRENT;
	if (flags > 1)
		return DRIVER_INVALID_VALUE;
	return graph_follow(stream_of(s), (struct graph_node *const *)nodes, n,
			    flags);
}

EXPORT cuda_result cuGraphAddHostNode(cuda_graph_node *node, cuda_graph graph,
				      const cuda_graph_node *after, size_t n,
				      const cuda_host_node *host)
{
	const struct call c = {.fn = host->fn, .arg = host->userData};

	CURRENT;
	return graph_add((struct graph *)graph, (struct graph_node **)node,
			 (struct graph_node *const *)after, n, device(),
			 run_call, &c, sizeof(c));
}

EXPORT cuda_result cuGraphRetainUserObject(cuda_graph graph,
					   cuda_user_object object,
					   unsigned refs, unsigned flags)
{
	CURRENT;
	if (flags > 1)
		return DRIVER_INVALID_VALUE;
	return graph_keep((struct graph *)graph, (struct graph_object *)object,
			  refs, flags);
}

EXPORT cuda_result cuUserObjectCreate(cuda_user_object *object, void *ptr,
				      cuda_host_fn destroy, unsigned refs,
				      unsigned flags)
{
	CURRENT;
	if (flags != 1)
		return DRIVER_INVALID_VALUE;
	return graph_object_create((struct graph_object **)object, ptr, destroy,
				   refs);
}

EXPORT cuda_result cuUserObjectRelease(cuda_user_object object, unsigned refs)
{
	IN_CONTEXT;
	return graph_object_release((struct graph_object *)object, refs);
}

#ifndef MOCK_BETWEEN
#define MEM_OPS 4

struct mem_ops {
	struct mem_op {
		void *word;
		uint32_t value;
		bool waits;
	} ops[MEM_OPS];
	unsigned n;
};

static int run_mem_ops(void *arg)
{
	struct mem_ops *m = arg;

	for (unsigned i = 0; i < m->n; i++)
		if (m->ops[i].waits)
			driver_hold(m->ops[i].word, m->ops[i].value);
		else
			driver_store(m->ops[i].word, m->ops[i].value);
	free(m);
	return DRIVER_SUCCESS;
}

EXPORT cuda_result cuGraphAddBatchMemOpNode(cuda_graph_node *node,
					    cuda_graph graph,
					    const cuda_graph_node *after,
					    size_t n, const cuda_mem_node *mem)
{
	struct mem_ops m = {.n = mem->count};

	CURRENT;
	if (mem->ctx != stack[depth - 1] || mem->flags || !m.n || m.n > MEM_OPS)
		return DRIVER_INVALID_VALUE;
	for (unsigned i = 0; i < m.n; i++) {
		const cuda_mem_op *op = &mem->paramArray[i];

		m.ops[i].waits = op->operation == CUDA_MEM_OP_WAIT_VALUE;
		m.ops[i].value = op->waitValue.value;
		m.ops[i].word = driver_translate(op->waitValue.address, 4);
		if (!m.ops[i].word || op->waitValue.address % 4 ||
		    op->waitValue.flags != 0 ||
		    (!m.ops[i].waits &&
		     op->operation != CUDA_MEM_OP_WRITE_VALUE))
			return DRIVER_INVALID_VALUE;
	}
	return graph_add((struct graph *)graph, (struct graph_node **)node,
			 (struct graph_node *const *)after, n, device(),
			 run_mem_ops, &m, sizeof(m));
}

EXPORT cuda_result cuStreamWaitValue32_v2(cuda_stream s, cuda_pointer p,
					  uint32_t value, unsigned flags)
{
	return wait_value(s, p, value, flags);
}

EXPORT cuda_result cuStreamWriteValue32_v2(cuda_stream s, cuda_pointer p,
					   uint32_t value, unsigned flags)
{
	return write_value(s, p, value, flags);
}

EXPORT cuda_result cuModuleGetLoadingMode(cuda_loading_mode *mode)
{
	const char *how = getenv("MOCK_LOADING");

	*mode = how && !strcmp(how, "lazy") ? CUDA_LOADING_LAZY : 1;
	return DRIVER_SUCCESS;
}

EXPORT cuda_result cuMemGetHandleForAddressRange(void *handle, cuda_pointer p,
						 size_t bytes,
						 cuda_range_type type,
						 unsigned long long flags)
{
	CURRENT;
	if (type != CUDA_RANGE_DMA_BUF_FD || flags)
		return DRIVER_INVALID_VALUE;
	return driver_range_fd(handle, address(p), bytes);
}
#endif
#endif
