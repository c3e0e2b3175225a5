/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * AMD GPUs by the HIP runtime, which is opened at run time.
 * src/accel/gpu/driver.h says what each function of the table does.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "src/accel/accel.h"
#include "src/accel/gpu/backend.h"
#include "src/accel/hip/api.h"
#include "src/accel/launch/rtc.h"
#include "src/base/library.h"
#include "src/base/log.h"
#include "dicomm.h"

/* Range of soname versions, which are the major versions of ROCm. */
#define NEWEST 7
#define OLDEST 5
#define HSA_LIBRARY "libhsa-runtime64.so.1"
#define HSA_EXPORT_DMABUF "hsa_amd_portable_export_dmabuf"
#define QUEUES "GPU_MAX_HW_QUEUES"

static struct functions {
#define F(name, symbol, needed, parameters) hip_result(*name) parameters;
	HIP_FUNCTIONS(F)
#undef F
#define F(name, symbol, result, parameters) result(*name) parameters;
	HIP_MORE_FUNCTIONS(F)
#undef F
} api;
static struct gpu_driver hip_gpu;

static void *runtime;
/* Major version of the runtime's soname; numbers of memory types depend on
 * it. */
static int major;
/* State of the calling thread before hip_enter(): its device, and whether HIP
 * holds an error of one of the user's calls that the user has not read yet. */
static _Thread_local int device_before;
static _Thread_local bool failed_before;

static const char *hip_error_text(int error)
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

static bool hip_loaded(void)
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

/* A host function on ROCm 5.2, which lacks hipLaunchHostFunc() and has only the
 * older hipStreamAddCallback(). */
static int call_back(void *stream, gpu_host_fn fn, void *arg)
{
	struct called *c;
	int error;

	c = malloc(sizeof(*c));
	if (!c)
		return HIP_OUT_OF_MEMORY;
	*c = (struct called){.fn = fn, .arg = arg};
	error = api.callback(stream, callback, c, 0);
	if (error)
		free(c);
	return error;
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
	if (!library_fill(runtime, soname, functions, &api, why, len))
		return false;
	GPU_CALLS_TAKE(&hip_gpu.api);
	if (!api.host_function)
		hip_gpu.api.host_function = call_back;
	return true;
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

static int hip_load(char *why, size_t len)
{
	int error, n = 0;

	if (!open_library(why, len))
		return 0;
	error = api.init(0);
	find_hsa();
	if (!error)
		error = api.device_count(&n);
	/* ROCm 5 says the second one where there is no device. */
	if (error) {
		snprintf(why, len, "the HIP runtime %s: %s (%d)",
			 error == HIP_NO_DEVICE || error == HIP_INVALID_DEVICE
				 ? "has no device"
				 : "does not start",
			 hip_error_text(error), error);
		return 0;
	}
	if (n == 0)
		snprintf(why, len, "the HIP runtime has no device");
	return n;
}

/* Clear an error that a call of the library left in the runtime; from ROCm 7
 * on, an error stays until someone reads it. An error of the user's own call
 * (`before`) stays. */
static void forget_ours(bool before)
{
	if (!before)
		(void)api.last_error();
}

static int hip_enter(int index)
{
	int error;

	failed_before = api.peek_error() != HIP_SUCCESS_;
	error = api.device_current(&device_before);
	if (!error)
		error = api.device_set(index);
	if (error)
		forget_ours(failed_before);
	return error;
}

static void hip_leave(void)
{
	api.device_set(device_before);
	forget_ours(failed_before);
}

static uint32_t hip_units(int index)
{
	int units = 0;

	if (api.device_attribute(&units, HIP_MULTIPROCESSOR_COUNT, index) ||
	    units < 1)
		return 1;
	return (uint32_t)units;
}

static dicomm_result_t hip_details(int index, dicomm_device_info_t *info)
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
			    hip_error_text(error), error);
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

static bool hip_owner(const void *ptr, struct accel_owner *owner)
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

static int hip_stream_open(int index, void *native, void **s, bool *fits)
{
	*s = native;
	*fits = !native || is_stream_of(index, native);
	return HIP_SUCCESS_;
}

/* HIP reports in several ways that an object is for another device. */
static bool hip_wrong_image(int error)
{
	return error == HIP_NO_BINARY_FOR_GPU || error == HIP_INVALID_IMAGE ||
	       error == HIP_OBJECT_INIT_FAILED;
}

static dicomm_result_t hip_compile(int index, int module, void **code,
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
static int hip_word_alloc(void **at)
{
	if (!api.signal_alloc(at, sizeof(uint64_t), HIP_SIGNAL_MEMORY))
		return HIP_SUCCESS_;
	return api.host_alloc(at, sizeof(uint64_t),
			      HIP_HOST_PORTABLE | HIP_HOST_MAPPED |
				      HIP_HOST_COHERENT);
}

static int hip_copy(void *dst, const void *src, size_t bytes, void *stream)
{
	return api.copy(dst, src, bytes, HIP_COPY_DEFAULT, stream);
}

/* Compares all 64 bits: unlike CUDA's, this comparison does not allow
 * for wrapping. */
static int hip_wait_value(int index, void *stream, void *word, uint64_t value)
{
	(void)index;
	return api.wait_value(stream, word, value, HIP_WAIT_GTE, UINT64_MAX);
}

static bool hip_has_dmabuf(int index)
{
	(void)index;
	return api.export_dmabuf || api.range_handle;
}

/* Small allocations are parts of larger blocks, and then the descriptor is that
 * of the block. HSA returns the offset in it. HIP's function, in ROCm 7 and
 * later, does not, so a descriptor that is longer than the range is refused. */
static int hip_range_fd(int *fd, const void *at, void *base, size_t bytes,
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

static int hip_buffer_id(uintptr_t base, uint64_t *id)
{
	*id = 0;
	return api.pointer_attribute(id, HIP_POINTER_BUFFER_ID, (void *)base);
}

static int hip_peer(int index, int other)
{
	int can = 0;
	int error = api.reaches(&can, index, other);

	if (error || !can)
		return error ? error : HIP_NOT_SUPPORTED;
	error = api.reach(other, 0);
	return error == HIP_PEER_ACCESS_ALREADY_ENABLED ? HIP_SUCCESS_ : error;
}

/* The number of the only flag has changed between versions, so try both. */
static int hip_ipc_open(void **p, const void *handle, pid_t owner)
{
	const hip_ipc *ipc = handle;
	int error = api.ipc_open(p, *ipc, 1);

	(void)owner;
	return error ? api.ipc_open(p, *ipc, 0) : HIP_SUCCESS_;
}

_Static_assert(sizeof(hip_ipc) == sizeof(((struct accel_handle *)0)->vendor),
	       "handle");
_Static_assert(sizeof(hip_host_node) == sizeof(struct gpu_host_node), "node");

/*
 * It does not write words: HIP can write one, but by a kernel of one thread,
 * and hipEventQuery() only looks at a signal in memory. Nor has it nodes for
 * stops: HIP runs waits for memory, and writes to it, at once, even if the
 * stream is being captured.
 */
static struct gpu_driver hip_gpu = {
	.which = GPU_HIP,
	.kind = "hip",
	.vendor = "AMD",
	.images = "gfx",
	.one_module = true,
	.queues = QUEUES,
	.out_of_memory = HIP_OUT_OF_MEMORY,
	.out_of_host_memory = HIP_OUT_OF_MEMORY,
	.not_supported = HIP_NOT_SUPPORTED,
	.not_ready = HIP_NOT_READY,
	.capture_implicit = HIP_CAPTURE_IMPLICIT,
	.capture_none = HIP_CAPTURE_NONE,
	.capture_active = HIP_CAPTURE_ACTIVE,
	.capture_relaxed = HIP_CAPTURE_RELAXED,
	.stream_flags = HIP_STREAM_NON_BLOCKING,
	/* NICs and other devices must see what was written before an event.
	 * Without the second flag, HIP promises that only within the device. */
	.event_flags = HIP_EVENT_DISABLE_TIMING | HIP_EVENT_RELEASE_TO_SYSTEM,
	/* HIP has no flag for memory that is only read; CUDA's number means
	 * another kind of memory here. */
	.host_flags = HIP_HOST_PORTABLE | HIP_HOST_MAPPED,
	.load = hip_load,
	.error_text = hip_error_text,
	.enter = hip_enter,
	.leave = hip_leave,
	.units = hip_units,
	.details = hip_details,
	.owner = hip_owner,
	.has_dmabuf = hip_has_dmabuf,
	.buffer_id = hip_buffer_id,
	.peer = hip_peer,
	.ipc_open = hip_ipc_open,
	.range_fd = hip_range_fd,
	.stream_open = hip_stream_open,
	.copy = hip_copy,
	.wrong_image = hip_wrong_image,
	.compile = hip_compile,
	.word_alloc = hip_word_alloc,
	.wait_value = hip_wait_value,
	.waits_probe = gpu_stream_wait_probe,
	.writes_probe = gpu_event_probe,
	GPU_LOCKS,
};

GPU_GRAPHS(hip)
GPU_ACCEL(hip, QUEUES, gpu, gpu_graph_held, &hip_graphs)
