/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NVIDIA GPUs by the CUDA driver, which is opened at run time. All calls use
 * the primary context of a device, which the CUDA runtime uses as well.
 * src/accel/gpu/driver.h says what each function of the table does.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "src/accel/accel.h"
#include "src/accel/cuda/api.h"
#include "src/accel/gpu/backend.h"
#include "src/accel/launch/launch.h"
#include "src/accel/launch/rtc.h"
#include "src/base/library.h"
#include "src/base/log.h"
#include "dicomm.h"

#define LIBRARY "libcuda.so.1"

#define QUEUES "CUDA_DEVICE_MAX_CONNECTIONS"
#define PAGE_BYTES 4096
#define WORD_BYTES 64

static struct functions {
#define F(name, symbol, needed, parameters) cuda_result(*name) parameters;
	CUDA_FUNCTIONS(F)
#undef F
} api;
static struct gpu_driver cuda_gpu;

static cuda_device handles[GPU_DEVICES];
static _Atomic(cuda_context) contexts[GPU_DEVICES];

static const char *cuda_error_text(int error)
{
	const char *text = NULL;

	if (api.error_string(error, &text) || !text)
		return "unknown error";
	return text;
}

static bool open_library(char *why, size_t len)
{
	static const struct library_function functions[] = {
#define F(name, symbol, needed, parameters) \
	LIBRARY_SYMBOL(struct functions, name, symbol, needed)
		CUDA_FUNCTIONS(F)
#undef F
			LIBRARY_END};
	void *lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!lib) {
		snprintf(why, len, "no CUDA driver: %s", dlerror());
		return false;
	}
	if (!library_fill(lib, LIBRARY ", older than CUDA 10.0,", functions,
			  &api, why, len))
		return false;
	GPU_CALLS_TAKE(&cuda_gpu.api);
	if (!api.graph_mem_node)
		cuda_gpu.stop_node = NULL;
	return true;
}

static bool cuda_loaded(void)
{
	return accel_has_loaded(LIBRARY);
}

static int cuda_load(char *why, size_t len)
{
	int error, n = 0;

	if (!open_library(why, len))
		return 0;
	error = api.init(0);
	if (!error)
		error = api.device_count(&n);
	if (n > GPU_DEVICES)
		n = GPU_DEVICES;
	for (int i = 0; i < n && !error; i++)
		error = api.device_get(&handles[i], i);
	if (error) {
		snprintf(why, len, "the CUDA driver does not start: %s (%d)",
			 cuda_error_text(error), error);
		return 0;
	}
	if (n == 0)
		snprintf(why, len, "the CUDA driver has no device");
	return n;
}

/* Loading a kernel may wait for the whole device, inside the driver, which then
 * admits no other thread. If a stream waits for the library at that moment,
 * both wait for ever. The library loads its own kernels when the device is
 * first used. About the user's kernels it can only warn, because the driver has
 * read the environment variable by now. The caller holds the lock. */
static void warn_of_loading(void)
{
	static bool is_told;
	cuda_loading_mode mode = 0;

	if (is_told || !api.loading_mode || api.loading_mode(&mode) ||
	    mode != CUDA_LOADING_LAZY)
		return;
	is_told = true;
	log_warn(
		"cuda: the driver loads kernels when they are first launched; "
		"such a launch and an operation that is under way may wait for "
		"each other for ever (CUDA_MODULE_LOADING=EAGER loads them "
		"before)");
}

/* Retain the primary context. It is never released, because memory and streams
 * of the user belong to it, too. */
static int cuda_device_init(int index)
{
	cuda_context context = NULL;
	int error;

	if (contexts[index])
		return CUDA_SUCCESS_;
	error = api.context_retain(&context, handles[index]);
	if (error)
		return error;
	contexts[index] = context;
	warn_of_loading();
	return CUDA_SUCCESS_;
}

static int cuda_enter(int index)
{
	return api.context_push(contexts[index]);
}

static void cuda_leave(void)
{
	cuda_context was;

	api.context_pop(&was);
}

static int attribute(int index, cuda_device_attribute what)
{
	int value = 0;

	return api.device_attribute(&value, what, handles[index]) ? 0 : value;
}

static uint32_t cuda_units(int index)
{
	int units = attribute(index, CUDA_MULTIPROCESSOR_COUNT);

	return units > 0 ? (uint32_t)units : 1;
}

static dicomm_result_t cuda_details(int index, dicomm_device_info_t *info)
{
	char name[80] = "";
	int version = 0, error;

	error = api.device_name(name, sizeof(name), handles[index]);
	if (!error)
		error = api.device_pci(info->pci, sizeof(info->pci),
				       handles[index]);
	if (!error)
		error = api.version(&version);
	if (error)
		return FAIL(DICOMM_ERR_DEVICE, "cuda:%d: %s (%d)", index,
			    cuda_error_text(error), error);
	snprintf(info->description, sizeof(info->description),
		 "%s, driver of CUDA %d.%d", name, version / 1000,
		 version % 1000 / 10);
	return DICOMM_SUCCESS;
}

/* Returns true if memory belongs to a context that the library does not use.
 * Contexts of one device have page tables of their own, though the driver gives
 * no address twice. Managed memory is mapped in all contexts. Memory of pools,
 * and memory mapped piece by piece, belongs to no context (of is NULL). */
static bool is_apart(cuda_context of, int ordinal)
{
	cuda_context used = ordinal < GPU_DEVICES ? contexts[ordinal] : NULL;

	return of && used && of != used;
}

static bool cuda_owner(const void *ptr, struct accel_owner *owner)
{
	cuda_pointer_attribute what[] = {
		CUDA_POINTER_MEMORY_TYPE, CUDA_POINTER_IS_MANAGED,
		CUDA_POINTER_DEVICE_ORDINAL, CUDA_POINTER_CONTEXT};
	cuda_context context = NULL;
	unsigned type = 0, moves = 0;
	int ordinal = -1;
	void *values[] = {&type, &moves, &ordinal, &context};

	if (api.pointer_attributes(4, what, values,
				   (cuda_pointer)(uintptr_t)ptr))
		return false;
	if ((type != CUDA_MEMORY_DEVICE && !moves) || ordinal < 0)
		return false;
	*owner = (struct accel_owner){.index = ordinal,
				      .managed = moves,
				      .apart = !moves &&
					       is_apart(context, ordinal)};
	return true;
}

static int cuda_stream_open(int index, void *native, void **s, bool *fits)
{
	cuda_context context = NULL;

	*s = native;
	*fits = !native || (!api.stream_context(native, &context) &&
			    context == contexts[index]);
	return CUDA_SUCCESS_;
}

/* The image is for another device, or it is PTX that this driver
 * cannot compile. */
static bool cuda_wrong_image(int error)
{
	return error == CUDA_NO_BINARY_FOR_GPU || error == CUDA_INVALID_IMAGE ||
	       error == CUDA_INVALID_PTX || error == CUDA_NO_PTX_COMPILER ||
	       error == CUDA_UNSUPPORTED_PTX || error == CUDA_JIT_DISABLED;
}

/* Compile for exactly this device: drivers accept PTX only of compilers that
 * are no newer than they are. If the compiler does not know the device yet, it
 * makes PTX for the newest older one that it knows. If it knows none, an older
 * compiler is tried: newer ones have dropped old devices. */
static dicomm_result_t cuda_compile(int index, int module, void **code,
				    char *why, size_t len)
{
	enum launch_module m = (enum launch_module)module;
	int version = 0, arch = 10 * attribute(index, CUDA_COMPUTE_MAJOR);
	int error = api.version(&version), known = 0;
	size_t next = 0;
	struct rtc rtc;

	if (error || !arch)
		return FAIL(DICOMM_ERR_DEVICE,
			    "cuda:%d: its architecture is not known: %s (%d)",
			    index, cuda_error_text(error), error);
	arch += attribute(index, CUDA_COMPUTE_MINOR);
	for (*code = NULL; !*code && !known;) {
		if (!rtc_open_nvrtc(&rtc, version / 1000, &next, why, len))
			return DICOMM_ERR_UNSUPPORTED;
		*code = rtc_cuda(&rtc, m, arch, false, why, len);
		known = rtc_newest(&rtc, arch);
	}
	if (!*code)
		*code = rtc_cuda(&rtc, m, known, true, why, len);
	return *code ? DICOMM_SUCCESS : DICOMM_ERR_UNSUPPORTED;
}

/* Each word has a cache line of its own, in a page that is pinned when the last
 * one is used up. gpu/device.h calls this under its lock. */
static int cuda_word_alloc(void **at)
{
	static char *page;
	static size_t used = PAGE_BYTES;
	void *fresh = NULL;
	int error;

	if (used == PAGE_BYTES) {
		error = api.host_alloc(&fresh, PAGE_BYTES,
				       CUDA_HOST_PORTABLE |
					       CUDA_HOST_DEVICEMAP);
		if (error)
			return error;
		page = fresh;
		used = 0;
	}
	*at = page + used;
	used += WORD_BYTES;
	return CUDA_SUCCESS_;
}

static int cuda_copy(void *dst, const void *src, size_t bytes, void *stream)
{
	return api.copy((cuda_pointer)(uintptr_t)dst,
			(cuda_pointer)(uintptr_t)src, bytes, stream);
}

/* Returns true if one of the two versions of a stream memory operation can be
 * used. Old drivers have the first version, too, but it works only where an
 * administrator has enabled it. */
static bool has_mem_op(int index, bool second, bool first)
{
	return second || (first && attribute(index, CUDA_MEM_OPS_V1));
}

/* Waits for the lower half of the word, by a comparison that allows for
 * wrapping. Memory that the driver itself has pinned has one address for the
 * host and all devices, so the word's address serves.
 * cuMemHostGetDevicePointer() is defined only for the address where that
 * memory begins. */
static int cuda_wait_value(int index, void *stream, void *word, uint64_t value)
{
	cuda_pointer at = (uintptr_t)word;

	if (!has_mem_op(index, api.wait_value, api.wait_value_v1))
		return CUDA_NOT_SUPPORTED;
	return api.wait_value ? api.wait_value(stream, at, (uint32_t)value,
					       CUDA_WAIT_GEQ)
			      : api.wait_value_v1(stream, at, (uint32_t)value,
						  CUDA_WAIT_GEQ);
}

static bool cuda_writes(int index)
{
	return has_mem_op(index, api.write_value, api.write_value_v1);
}

/* Write with the default memory barrier: who sees the number sees all that the
 * stream did before. On the default stream this is refused: an event there is
 * also behind the streams that synchronise with it, which nothing promises of
 * a write. */
static int cuda_write_value(int index, void *stream, void *word, uint32_t value)
{
	cuda_pointer at = (uintptr_t)word;

	(void)index;
	if (!stream || (uintptr_t)stream == CUDA_STREAM_LEGACY)
		return CUDA_NOT_SUPPORTED;
	return api.write_value
		       ? api.write_value(stream, at, value, CUDA_WRITE_DEFAULT)
		       : api.write_value_v1(stream, at, value,
					    CUDA_WRITE_DEFAULT);
}

/* From CUDA 11.7 on the device does both by itself, one after the other. A
 * write has the default memory barrier, as in cuda_write_value(). */
static int cuda_stop_node(int index, void **node, void *graph,
			  void *const *after, size_t n, void *word)
{
	cuda_mem_op ops[2] = {0};
	const cuda_mem_node mem = {
		.ctx = contexts[index], .count = 2, .paramArray = ops};
	cuda_graph_node made = NULL;
	int error;

	ops[0].writeValue.operation = CUDA_MEM_OP_WRITE_VALUE;
	ops[0].writeValue.address = (uintptr_t)word;
	ops[0].writeValue.value = 0;
	ops[0].writeValue.flags = CUDA_WRITE_DEFAULT;
	ops[1].waitValue.operation = CUDA_MEM_OP_WAIT_VALUE;
	ops[1].waitValue.address = (uintptr_t)word;
	ops[1].waitValue.value = 1;
	ops[1].waitValue.flags = CUDA_WAIT_GEQ;
	error = api.graph_mem_node(&made, graph, (const cuda_graph_node *)after,
				   n, &mem);
	*node = made;
	return error;
}

static bool cuda_has_dmabuf(int index)
{
	return api.range_handle && attribute(index, CUDA_DMA_BUF_SUPPORTED);
}

static unsigned cuda_flushes(int index)
{
	int order = attribute(index, CUDA_RDMA_WRITES_ORDERING);

	return (order < CUDA_RDMA_ORDERED_FOR_OWNER ? ACCEL_FLUSH : 0) |
	       (order < CUDA_RDMA_ORDERED_FOR_ALL ? ACCEL_FLUSH_OTHERS : 0);
}

/* Transports read this memory without asking the driver. So
 * CUDA_POINTER_SYNC_MEMOPS makes copies complete before they look complete to
 * the host. It is set through `at`, since the page that base begins may hold
 * another allocation before it. */
static int cuda_range_fd(int *fd, const void *at, void *base, size_t bytes,
			 uint64_t *skip)
{
	unsigned yes = 1;
	int error = api.range_handle(fd, (uintptr_t)base, bytes,
				     CUDA_RANGE_DMA_BUF_FD, 0);

	*skip = 0;
	if (!error)
		(void)api.pointer_set(&yes, CUDA_POINTER_SYNC_MEMOPS,
				      (cuda_pointer)(uintptr_t)at);
	return error;
}

static int cuda_buffer_id(uintptr_t base, uint64_t *id)
{
	unsigned long long number = 0;
	int error =
		api.pointer_attribute(&number, CUDA_POINTER_BUFFER_ID, base);

	*id = number;
	return error;
}

static int cuda_peer(int index, int other)
{
	int can = 0;
	int error = api.reaches(&can, handles[index], handles[other]);

	if (error || !can)
		return error ? error : CUDA_NOT_SUPPORTED;
	error = api.reach(contexts[other], 0);
	return error == CUDA_PEER_ACCESS_ALREADY_ENABLED ? CUDA_SUCCESS_
							 : error;
}

static int cuda_ipc_open(void **p, const void *handle, pid_t owner)
{
	const cuda_ipc *ipc = handle;
	cuda_pointer at = 0;
	int error;

	(void)owner;
	error = api.ipc_open
			? api.ipc_open(&at, *ipc, CUDA_IPC_LAZY_PEER_ACCESS)
			: api.ipc_open_v1(&at, *ipc, CUDA_IPC_LAZY_PEER_ACCESS);
	*p = (void *)(uintptr_t)at;
	return error;
}

_Static_assert(sizeof(cuda_ipc) == sizeof(((struct accel_handle *)0)->vendor),
	       "handle");
_Static_assert(sizeof(cuda_host_node) == sizeof(struct gpu_host_node), "node");
_Static_assert(sizeof(cuda_pointer) == sizeof(void *), "pointer");

static struct gpu_driver cuda_gpu = {
	.which = GPU_CUDA,
	.kind = "cuda",
	.vendor = "NVIDIA",
	.images = "ptx",
	.queues = QUEUES,
	.out_of_memory = CUDA_OUT_OF_MEMORY,
	.out_of_host_memory = CUDA_OUT_OF_MEMORY,
	.not_supported = CUDA_NOT_SUPPORTED,
	.not_ready = CUDA_NOT_READY,
	.capture_implicit = CUDA_CAPTURE_IMPLICIT,
	.capture_none = CUDA_CAPTURE_NONE,
	.capture_active = CUDA_CAPTURE_ACTIVE,
	.capture_relaxed = CUDA_CAPTURE_RELAXED,
	.stream_flags = CUDA_STREAM_NON_BLOCKING,
	.event_flags = CUDA_EVENT_DISABLE_TIMING,
	.host_flags = CUDA_HOST_PORTABLE | CUDA_HOST_DEVICEMAP,
	.host_read_only = CUDA_HOST_READ_ONLY,
	.load = cuda_load,
	.error_text = cuda_error_text,
	.device_init = cuda_device_init,
	.enter = cuda_enter,
	.leave = cuda_leave,
	.units = cuda_units,
	.details = cuda_details,
	.owner = cuda_owner,
	.has_dmabuf = cuda_has_dmabuf,
	.flushes = cuda_flushes,
	.buffer_id = cuda_buffer_id,
	.peer = cuda_peer,
	.ipc_open = cuda_ipc_open,
	.range_fd = cuda_range_fd,
	.stream_open = cuda_stream_open,
	.copy = cuda_copy,
	.wrong_image = cuda_wrong_image,
	.compile = cuda_compile,
	.word_alloc = cuda_word_alloc,
	.wait_value = cuda_wait_value,
	.writes = cuda_writes,
	.write_value = cuda_write_value,
	.stop_node = cuda_stop_node,
	.waits_probe = gpu_stream_wait_probe,
	.writes_probe = gpu_event_probe,
	GPU_LOCKS,
};

GPU_GRAPHS(cuda)
GPU_ACCEL(cuda, QUEUES, gpu, gpu_graph_held, &cuda_graphs)
