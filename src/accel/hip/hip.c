/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * AMD GPUs by the HIP runtime, which is opened at run time. src/accel/gpu has
 * the code that this backend shares with others.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "src/accel/accel.h"
#include "src/accel/hip/api.h"
#include "src/accel/launch/image.h"
#include "src/accel/launch/launch.h"
#include "src/accel/launch/rtc.h"
#include "src/base/library.h"
#include "src/base/log.h"
#include "dicomm.h"

/* Range of soname versions, which are the major versions of ROCm. */
#define NEWEST 7
#define OLDEST 5
#define HSA_LIBRARY "libhsa-runtime64.so.1"
#define HSA_EXPORT_DMABUF "hsa_amd_portable_export_dmabuf"

#define GPU_KIND "hip"
#define GPU_VENDOR "AMD"
#define GPU_SUCCESS HIP_SUCCESS_
#define GPU_OUT_OF_MEMORY HIP_OUT_OF_MEMORY
#define GPU_NOT_SUPPORTED HIP_NOT_SUPPORTED
#define GPU_NOT_READY HIP_NOT_READY
#define GPU_STREAM_NON_BLOCKING HIP_STREAM_NON_BLOCKING
/* NICs and other devices must see what was written before an event. Without the
 * second flag, HIP promises that only within the device. */
#define GPU_EVENT_DISABLE_TIMING \
	(HIP_EVENT_DISABLE_TIMING | HIP_EVENT_RELEASE_TO_SYSTEM)
#define GPU_HOST_PORTABLE HIP_HOST_PORTABLE
#define GPU_HOST_DEVICEMAP HIP_HOST_MAPPED
/* HIP lacks the flag; CUDA's number means another kind of memory here. */
#define GPU_HOST_READ_ONLY 0
#define GPU_CAPTURE_NONE HIP_CAPTURE_NONE
#define GPU_CAPTURE_RELAXED HIP_CAPTURE_RELAXED
#define GPU_CAPTURE_IMPLICIT HIP_CAPTURE_IMPLICIT
#define GPU_CAPTURE_ACTIVE HIP_CAPTURE_ACTIVE
#define GPU_CAPTURED \
	"is being captured into a graph, which this cannot be part of"
#define GPU_STREAM_WAITS "src/accel/gpu/graph.h"
#define GPU_HELD gpu_held_or_stopped
#define GPU_GRAPHS &gpu_graphs
#define GPU_QUEUES "GPU_MAX_HW_QUEUES"
typedef void *gpu_pointer;
typedef hip_stream gpu_stream;
typedef hip_event gpu_event;
typedef hip_module gpu_module;
typedef hip_function gpu_function;
typedef hip_ipc gpu_ipc;
typedef hip_capture gpu_capture;
typedef hip_graph gpu_graph;
typedef hip_graph_node gpu_node;
typedef hip_user_object gpu_object;

static struct functions {
#define F(name, symbol, needed, parameters) hip_result(*name) parameters;
	HIP_FUNCTIONS(F)
#undef F
#define F(name, symbol, result, parameters) result(*name) parameters;
	HIP_MORE_FUNCTIONS(F)
#undef F
} api;

#include "src/accel/gpu/capture.h"

static void *runtime;
/* Major version of the runtime's soname; numbers of memory types depend on
 * it. */
static int major;
/* State of the calling thread before gpu_enter(): its device, and whether HIP
 * holds an error of one of the user's calls that the user has not read yet. */
static _Thread_local int device_before;
static _Thread_local bool failed_before;

static const char *gpu_error_text(int error)
{
	const char *text = api.error_string ? api.error_string(error) : NULL;

	return text ? text : "unknown error";
}

/* Open the newest version that dlopen() finds with `mode` added. */
static void *open_newest(int mode, int *version)
{
	char name[32];
	void *lib;

	for (*version = NEWEST; *version >= OLDEST; --*version) {
		snprintf(name, sizeof(name), "libamdhip64.so.%d", *version);
		lib = dlopen(name, RTLD_NOW | RTLD_LOCAL | mode);
		if (lib)
			return lib;
	}
	return NULL;
}

static bool gpu_loaded(void)
{
	int version;
	void *lib;

	if (!accel_may_have_loaded("libamdhip64"))
		return false;
	lib = open_newest(RTLD_NOLOAD, &version);
	if (lib)
		dlclose(lib);
	return lib;
}

/* Open the runtime that the process has loaded, since that made the user's
 * streams; if there is none, the newest. */
static void *open_runtime(char *why, size_t len)
{
	void *lib = open_newest(RTLD_NOLOAD, &major);

	if (!lib)
		lib = open_newest(0, &major);
	if (!lib)
		snprintf(why, len, "no HIP runtime: %s", dlerror());
	return lib;
}

static bool open_library(char *why, size_t len)
{
	static const struct library_function functions[] = {
#define F(name, symbol, needed, parameters) \
	LIBRARY_SYMBOL(struct functions, name, symbol, needed)
		HIP_FUNCTIONS(F)
#undef F
#define F(name, symbol, result, parameters) \
	LIBRARY_SYMBOL(struct functions, name, symbol, false)
			HIP_MORE_FUNCTIONS(F)
#undef F
				LIBRARY_END};
	char soname[32];

	runtime = open_runtime(why, len);
	if (!runtime)
		return false;
	snprintf(soname, sizeof(soname), "libamdhip64.so.%d", major);
	return library_fill(runtime, soname, functions, &api, why, len);
}

/* Find hsa_amd_portable_export_dmabuf(). Some builds of HIP are not linked to
 * HSA but open it when they start, so dlsym() on HIP does not find it. */
static void find_hsa(void)
{
	void *lib;

	if (api.export_dmabuf)
		return;
	lib = dlopen(HSA_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	if (lib)
		*(void **)&api.export_dmabuf = dlsym(lib, HSA_EXPORT_DMABUF);
}

static int gpu_load(char *why, size_t len)
{
	int error, n = 0;

	if (!open_library(why, len))
		return 0;
	error = api.init(0);
	find_hsa();
	if (!error)
		error = api.device_count(&n);
	if (error) {
		snprintf(why, len, "the HIP runtime does not start: %s (%d)",
			 gpu_error_text(error), error);
		return 0;
	}
	if (n == 0)
		snprintf(why, len, "the HIP runtime has no device");
	return n;
}

static int gpu_device_init(int index)
{
	(void)index;
	return HIP_SUCCESS_;
}

/* Clear an error that a call of the library left in the runtime; from ROCm 7
 * on, an error stays until someone reads it. An error of the user's own call
 * (`before`) stays. */
static void forget_ours(bool before)
{
	if (!before)
		(void)api.last_error();
}

static int gpu_enter(int index)
{
	int error;

	failed_before = api.peek_error() != HIP_SUCCESS_;
	error = api.device_current(&device_before);
	if (!error)
		error = api.device_set(index);
	if (!error)
		gpu_relax();
	else
		forget_ours(failed_before);
	return error;
}

static void gpu_leave(void)
{
	gpu_restore();
	api.device_set(device_before);
	forget_ours(failed_before);
}

static uint32_t gpu_units(int index)
{
	int units = 0;

	if (api.device_attribute(&units, HIP_MULTIPROCESSOR_COUNT, index) ||
	    units < 1)
		return 1;
	return (uint32_t)units;
}

static dicomm_result_t gpu_details(int index, dicomm_device_info_t *info)
{
	char name[80] = "";
	int version = 0, error;

	error = api.device_name(name, sizeof(name), index);
	if (!error)
		error = api.device_pci(info->pci, sizeof(info->pci), index);
	if (!error)
		error = api.version(&version);
	if (error)
		return FAIL(DICOMM_ERR_DEVICE, "hip:%d: %s (%d)", index,
			    gpu_error_text(error), error);
	snprintf(info->description, sizeof(info->description),
		 "%s, HIP runtime %d.%d", name, version / 10000000,
		 version / 100000 % 100);
	return DICOMM_SUCCESS;
}

static bool pointer_attribute(const void *ptr, hip_pointer_attribute what,
			      void *value)
{
	bool before = api.peek_error() != HIP_SUCCESS_;

	if (!api.pointer_attribute(value, what, (void *)(uintptr_t)ptr))
		return true;
	forget_ours(before);
	return false;
}

static bool gpu_owner(const void *ptr, struct accel_owner *owner)
{
	/* moves is a bool to HIP; the type leaves room for a driver that writes
	 * more bytes. */
	unsigned type = 0, moves = 0;
	int ordinal = -1;

	if (!pointer_attribute(ptr, HIP_POINTER_MEMORY_TYPE, &type) ||
	    !pointer_attribute(ptr, HIP_POINTER_DEVICE_ORDINAL, &ordinal))
		return false;
	if (type != (major < 6 ? HIP_MEMORY_DEVICE_5 : HIP_MEMORY_DEVICE)) {
		if (!pointer_attribute(ptr, HIP_POINTER_IS_MANAGED, &moves) ||
		    !moves)
			return false;
	}
	if (ordinal < 0)
		return false;
	*owner = (struct accel_owner){.index = ordinal, .managed = moves};
	return true;
}

static bool is_stream_of(int index, hip_stream s)
{
	hip_device device = -1;

	if (api.stream_device)
		return !api.stream_device(s, &device) && device == index;
	return !api.stream_device_5 || api.stream_device_5(s) == index;
}

static int gpu_stream_open(int index, void *native, hip_stream *s, bool *fits)
{
	*s = native;
	*fits = !native || is_stream_of(index, native);
	return HIP_SUCCESS_;
}

static void gpu_stream_close(hip_stream s, bool own)
{
	if (own)
		api.stream_destroy(s);
}

/* The kernels of all types are one module, with one code object for each
 * GPU. */
static int gpu_module_of(const struct launch *l)
{
	(void)l;
	return 0;
}

static const struct image *gpu_image(int module, int i)
{
	const struct image *image;

	(void)module;
	for (int k = 0; (image = image_at(k)); k++)
		if (!strncmp(image->name, "gfx", 3) && i-- == 0)
			return image;
	return NULL;
}

/* HIP reports in several ways that an object is for another device. */
static bool gpu_wrong_image(int error)
{
	return error == HIP_NO_BINARY_FOR_GPU || error == HIP_INVALID_IMAGE ||
	       error == HIP_OBJECT_INIT_FAILED;
}

static dicomm_result_t gpu_compile(int index, int module, void **code,
				   char *why, size_t len)
{
	struct rtc rtc;

	(void)index;
	(void)module;
	if (!rtc_open_hiprtc(&rtc, runtime, major, why, len))
		return DICOMM_ERR_UNSUPPORTED;
	*code = rtc_hip(&rtc, why, len);
	return *code ? DICOMM_SUCCESS : DICOMM_ERR_UNSUPPORTED;
}

/* Allocate signal memory, which is the only kind that devices wait for. Where
 * the driver has none, use coherent pinned memory. */
static int gpu_word_alloc(void **at)
{
	if (!api.signal_alloc(at, sizeof(uint64_t), HIP_SIGNAL_MEMORY))
		return HIP_SUCCESS_;
	return api.host_alloc(at, sizeof(uint64_t),
			      HIP_HOST_PORTABLE | HIP_HOST_MAPPED |
				      HIP_HOST_COHERENT);
}

static int gpu_copy(void *dst, const void *src, size_t bytes, hip_stream stream)
{
	return api.copy(dst, src, bytes, HIP_COPY_DEFAULT, stream);
}

/* Compares all 64 bits: unlike CUDA's, this comparison does not allow
 * for wrapping. */
static int gpu_wait_value(int index, hip_stream stream, void *word,
			  uint64_t value)
{
	(void)index;
	return api.wait_value(stream, word, value, HIP_WAIT_GTE, UINT64_MAX);
}

/* HIP can write a word, but by a kernel of one thread. hipEventQuery() only
 * looks at a signal in memory, so events need no words. */
static bool gpu_writes(int index)
{
	(void)index;
	return false;
}

static int gpu_write_value(int index, hip_stream stream, void *word,
			   uint32_t value)
{
	(void)index;
	(void)stream;
	(void)word;
	(void)value;
	return HIP_NOT_SUPPORTED;
}

struct called {
	hip_host_fn fn;
	void *arg;
};

static void callback(hip_stream stream, hip_result error, void *ctx)
{
	struct called c = *(struct called *)ctx;

	(void)stream;
	(void)error;
	free(ctx);
	c.fn(c.arg);
}

/* ROCm 5.2 lacks hipLaunchHostFunc() and has only the older
 * hipStreamAddCallback(). */
static int gpu_host_function(hip_stream stream, hip_host_fn fn, void *arg)
{
	struct called *c;
	int error;

	if (api.host_function)
		return api.host_function(stream, fn, arg);
	c = malloc(sizeof(*c));
	if (!c)
		return HIP_OUT_OF_MEMORY;
	*c = (struct called){.fn = fn, .arg = arg};
	error = api.callback(stream, callback, c, 0);
	if (error)
		free(c);
	return error;
}

static int gpu_capture_info(hip_stream stream, hip_capture *state,
			    unsigned long long *capture, hip_graph *graph,
			    const hip_graph_node **nodes, size_t *n)
{
	return api.capture_info(stream, state, capture, graph, nodes, n);
}

/* HIP runs waits for memory, and writes to it, at once, even if the stream is
 * being captured. So the node is a host function. */
static int gpu_stop_node(int index, bool waits, hip_graph_node *node,
			 hip_graph graph, const hip_graph_node *after, size_t n,
			 void *word, hip_host_fn fn, void *arg)
{
	const hip_host_node host = {.fn = fn, .userData = arg};

	(void)index;
	(void)waits;
	(void)word;
	return api.graph_host_node(node, graph, after, n, &host);
}

static bool gpu_has_dmabuf(int index)
{
	(void)index;
	return api.export_dmabuf || api.range_handle;
}

/* HIP has no query that says that a device needs no flush. */
static unsigned gpu_flushes(int index)
{
	(void)index;
	return ACCEL_FLUSH | ACCEL_FLUSH_OTHERS;
}

/* Small allocations are parts of larger blocks, and then the descriptor is that
 * of the block. HSA returns the offset in it. HIP's function, in ROCm 7 and
 * later, does not, so a descriptor that is longer than the range is refused. */
static int gpu_range_fd(int *fd, const void *at, void *base, size_t bytes,
			uint64_t *skip)
{
	int error;

	(void)at;
	if (api.export_dmabuf && !api.export_dmabuf(base, bytes, fd, skip))
		return HIP_SUCCESS_;
	if (!api.range_handle)
		return HIP_NOT_SUPPORTED;
	*skip = 0;
	error = api.range_handle(fd, base, bytes, HIP_RANGE_DMA_BUF_FD, 0);
	if (error || lseek(*fd, 0, SEEK_END) <= (off_t)bytes)
		return error;
	close(*fd);
	return HIP_NOT_SUPPORTED;
}

static int gpu_buffer_id(uintptr_t base, uint64_t *id)
{
	*id = 0;
	return api.pointer_attribute(id, HIP_POINTER_BUFFER_ID, (void *)base);
}

static int gpu_peer(int index, int other)
{
	int can = 0;
	int error = api.reaches(&can, index, other);

	if (error || !can)
		return error ? error : HIP_NOT_SUPPORTED;
	error = api.reach(other, 0);
	return error == HIP_PEER_ACCESS_ALREADY_ENABLED ? HIP_SUCCESS_ : error;
}

static int gpu_module_load(hip_module *m, const void *code, size_t bytes)
{
	(void)bytes;
	return api.module_load(m, code);
}

/* The number of the only flag has changed between versions, so try both. */
static int gpu_ipc_open(void **p, hip_ipc ipc, pid_t owner)
{
	int error = api.ipc_open(p, ipc, 1);

	(void)owner;
	return error ? api.ipc_open(p, ipc, 0) : HIP_SUCCESS_;
}

#include "src/accel/gpu/backend.h"

const struct accel accel_hip = GPU_ACCEL;
