/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Intel GPUs by Level Zero, whose loader is opened at run time. This file gives
 * Level Zero the shape of the CUDA driver that src/accel/gpu/driver.h
 * describes. order.h makes its streams and events. A stream of the user is an
 * immediate ze_command_list_handle_t.
 *
 * The library has one context for each driver. A driver knows the memory, lists
 * and devices of all contexts of the process.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "src/accel/accel.h"
#include "src/accel/gpu/backend.h"
#include "src/accel/launch/launch.h"
#include "src/accel/ze/api.h"
#include "src/accel/ze/order.h"
#include "src/accel/ze/stream_wait.h"
#include "src/base/descriptors.h"
#include "src/base/library.h"
#include "src/base/log.h"
#include "dicomm.h"

#define LIBRARY "libze_loader.so.1"
#define MAX_DRIVERS 8
#define MAX_GROUPS 16
#define MAX_TILES 8
/* Offset of the owner's pid in an IPC handle, behind a descriptor and an offset
 * of 64 bits each. */
#define IPC_OWNER 16
/* Page size of an allocation, and of one of at least LARGE_BYTES. */
#define PAGE_BYTES ((size_t)64 << 10)
#define LARGE_BYTES ((size_t)2 << 20)
#define ZE_IMMEDIATE 1 /* what ze_list_is_immediate() says of such a list */

static int nplaces;
/* Tiles of devices, and the devices themselves. Programs may use a tile as
 * a device. */
static struct tile {
	ze_device device;
	int index;
} tiles[ZE_DEVICES * MAX_TILES];
static int ntiles;

static struct {
#define F(name, symbol, parameters) ze_result(*name) parameters;
	ZE_DRIVER_FUNCTIONS(F)
#undef F
} extensions[ZE_DEVICES];

/* Device of the thread between ze_enter() and ze_leave(). */
static _Thread_local int entered;

static const char *ze_error_text(int error)
{
	static const struct {
		int error;
		const char *text;
	} texts[] = {
		{ZE_NOT_READY, "not ready"},
		{ZE_DEVICE_LOST, "device lost"},
		{ZE_OUT_OF_HOST_MEMORY, "out of host memory"},
		{ZE_OUT_OF_DEVICE_MEMORY, "out of device memory"},
		{ZE_BUILD_FAILURE, "a module does not build"},
		{ZE_LINK_FAILURE, "a module does not link"},
		{ZE_UNINITIALIZED, "no driver"},
		{ZE_UNSUPPORTED_VERSION, "unsupported version"},
		{ZE_UNSUPPORTED_FEATURE, "unsupported feature"},
		{ZE_INVALID_ARGUMENT, "invalid argument"},
		{ZE_INVALID_NULL_HANDLE, "invalid null handle"},
		{ZE_INVALID_NULL_POINTER, "invalid null pointer"},
		{ZE_INVALID_SIZE, "invalid size"},
		{ZE_UNSUPPORTED_SIZE, "unsupported size"},
		{ZE_INVALID_SYNCHRONIZATION, "invalid state of an event"},
		{ZE_INVALID_ENUMERATION, "invalid enumeration"},
		{ZE_UNSUPPORTED_ENUMERATION, "unsupported enumeration"},
		{ZE_INVALID_NATIVE_BINARY, "invalid native binary"},
		{ZE_INVALID_KERNEL_NAME, "invalid name of a kernel"},
		{ZE_OVERLAPPING_REGIONS, "overlapping regions"},
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		if (texts[i].error == error)
			return texts[i].text;
	return "unknown error";
}

/* ---- what there is ---- */

static bool ze_loaded(void)
{
	return accel_has_loaded(LIBRARY);
}

static bool open_library(char *why, size_t len)
{
	static const struct library_function functions[] = {
#define F(name, symbol, parameters) \
	LIBRARY_SYMBOL(struct ze_functions, name, symbol, true)
		ZE_FUNCTIONS(F)
#undef F
#define F(name, symbol, parameters) \
	LIBRARY_SYMBOL(struct ze_functions, name, symbol, false)
			ZE_MORE_FUNCTIONS(F)
#undef F
				LIBRARY_END};
	void *lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!lib) {
		snprintf(why, len, "no Level Zero: %s", dlerror());
		return false;
	}
	return library_fill(lib, LIBRARY, functions, &ze, why, len);
}

/* Find the queue group that runs kernels; its queues copy, too. */
static bool find_ordinal(struct ze_place *place)
{
	ze_group_properties groups[MAX_GROUPS];
	uint32_t n = MAX_GROUPS;

	memset(groups, 0, sizeof(groups));
	for (int i = 0; i < MAX_GROUPS; i++)
		groups[i].type = ZE_GROUP_PROPERTIES;
	if (ze.groups(place->device, &n, groups))
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (groups[i].flags & ZE_GROUP_COMPUTE) {
			place->ordinal = i;
			place->queues = groups[i].queues;
			return true;
		}
	return false;
}

static void add_tiles(int index)
{
	ze_device found[MAX_TILES];
	uint32_t n = MAX_TILES;

	tiles[ntiles++] = (struct tile){ze_places[index].device, index};
	if (ze.subdevices(ze_places[index].device, &n, found))
		return;
	for (uint32_t i = 0; i < n && ntiles < ZE_DEVICES * MAX_TILES; i++)
		tiles[ntiles++] = (struct tile){found[i], index};
}

static void add_extensions(int index)
{
#define F(name, symbol, parameters)                         \
	if (ze.extension(ze_places[index].driver, #symbol,  \
			 (void **)&extensions[index].name)) \
		extensions[index].name = NULL;
	ZE_DRIVER_FUNCTIONS(F)
#undef F
}

static void add_device(ze_driver driver, ze_context context, ze_device device)
{
	ze_device_properties properties = {.type = ZE_DEVICE_PROPERTIES};
	struct ze_place place = {
		.driver = driver, .context = context, .device = device};

	if (nplaces == ZE_DEVICES ||
	    ze.device_properties(device, &properties) ||
	    properties.kind != ZE_KIND_GPU || !find_ordinal(&place))
		return;
	ze_places[nplaces] = place;
	add_tiles(nplaces);
	add_extensions(nplaces);
	nplaces++;
}

static int add_driver(ze_driver driver)
{
	const ze_context_desc desc = {.type = ZE_CONTEXT_DESC};
	ze_device devices[ZE_DEVICES];
	uint32_t n = ZE_DEVICES;
	ze_context context;
	int error;

	error = (int)ze.devices(driver, &n, devices);
	if (!error)
		error = (int)ze.context_create(driver, &desc, &context);
	for (uint32_t i = 0; i < n && !error; i++)
		add_device(driver, context, devices[i]);
	return error;
}

static int ze_load(char *why, size_t len)
{
	ze_driver drivers[MAX_DRIVERS];
	uint32_t n = MAX_DRIVERS;
	int error, failed = ZE_SUCCESS;

	if (!open_library(why, len))
		return 0;
	error = (int)ze.init(ZE_GPU_ONLY);
	if (!error)
		error = (int)ze.drivers(&n, drivers);
	/* A driver that fails does not hide the devices of the others. */
	for (uint32_t i = 0; i < n && !error; i++) {
		int of_driver = add_driver(drivers[i]);

		failed = of_driver ? of_driver : failed;
	}
	if (!error && !nplaces)
		error = failed;
	if (error) {
		snprintf(why, len, "Level Zero does not start: %s (%d)",
			 ze_error_text(error), error);
		return 0;
	}
	if (!nplaces)
		snprintf(why, len, "Level Zero has no GPU");
	return nplaces;
}

static int ze_enter(int index)
{
	entered = index;
	return ZE_SUCCESS;
}

static uint32_t ze_units(int index)
{
	ze_device_properties p = {.type = ZE_DEVICE_PROPERTIES};
	uint32_t units;

	if (ze.device_properties(ze_places[index].device, &p))
		return 1;
	units = p.slices * p.subslices_per_slice;
	return units ? units : 1;
}

static dicomm_result_t ze_details(int index, dicomm_device_info_t *info)
{
	ze_device_properties p = {.type = ZE_DEVICE_PROPERTIES};
	ze_pci_properties pci = {.type = ZE_PCI_PROPERTIES};
	const struct ze_place *place = &ze_places[index];
	ze_api_version version = 0;
	int error;

	error = (int)ze.device_properties(place->device, &p);
	if (!error)
		error = (int)ze.pci(place->device, &pci);
	if (!error)
		error = (int)ze.version(place->driver, &version);
	if (error)
		return FAIL(DICOMM_ERR_DEVICE, "ze:%d: %s (%d)", index,
			    ze_error_text(error), error);
	snprintf(info->pci, sizeof(info->pci), "%04x:%02x:%02x.%x",
		 pci.domain & 0xffff, pci.bus & 0xff, pci.device & 0xff,
		 pci.function & 0xf);
	snprintf(info->description, sizeof(info->description),
		 "%.80s, Level Zero %u.%u", p.name, version >> 16,
		 version & 0xffff);
	return DICOMM_SUCCESS;
}

/* ---- memory ---- */

static bool owner_in(ze_context context, const void *ptr,
		     struct accel_owner *owner)
{
	ze_alloc_properties p = {.type = ZE_ALLOC_PROPERTIES};
	ze_device device = NULL;

	if (ze.alloc_properties(context, ptr, &p, &device) ||
	    (p.kind != ZE_MEMORY_DEVICE && p.kind != ZE_MEMORY_SHARED))
		return false;
	for (int i = 0; i < ntiles; i++)
		if (tiles[i].device == device) {
			*owner = (struct accel_owner){
				.index = tiles[i].index,
				.managed = p.kind == ZE_MEMORY_SHARED};
			return true;
		}
	return false;
}

static bool ze_owner(const void *ptr, struct accel_owner *owner)
{
	for (int i = 0; ptr && i < nplaces; i++)
		if ((!i || ze_places[i].context != ze_places[i - 1].context) &&
		    owner_in(ze_places[i].context, ptr, owner))
			return true;
	return false;
}

static bool ze_has_dmabuf(int index)
{
	ze_external_properties external = {.type = ZE_EXTERNAL_PROPERTIES};

	return !ze.external(ze_places[index].device, &external) &&
	       external.exports & ZE_DMA_BUF;
}

/* Allocate memory that can be exported, if the device can export any. */
static int ze_alloc(void **p, size_t bytes)
{
	const struct ze_export_desc exported = {.type = ZE_EXPORT_DESC,
						.flags = ZE_DMA_BUF};
	ze_alloc_desc desc = {.type = ZE_ALLOC_DESC};
	const struct ze_place *place = &ze_places[entered];

	if (ze_has_dmabuf(entered))
		desc.next = &exported;
	return (int)ze.alloc(place->context, &desc, bytes, 0, place->device, p);
}

/* Free when the work that uses the memory has run, as other drivers do. */
static int ze_free(void *p)
{
	const ze_free_desc desc = {.type = ZE_FREE_DESC,
				   .policy = ZE_FREE_BLOCKING};

	return (int)ze.free(ze_places[entered].context, &desc, p);
}

static int ze_range(void **base, size_t *bytes, void *p)
{
	return (int)ze.range(ze_places[entered].context, p, base, bytes);
}

static int ze_buffer_id(uintptr_t base, uint64_t *id)
{
	ze_alloc_properties p = {.type = ZE_ALLOC_PROPERTIES};
	ze_device device = NULL;
	int error = (int)ze.alloc_properties(ze_places[entered].context,
					     (void *)base, &p, &device);

	*id = p.id;
	return error;
}

static int ze_host_alloc(void **p, size_t bytes, unsigned flags)
{
	const ze_host_desc desc = {.type = ZE_HOST_DESC};

	(void)flags;
	return (int)ze.host_alloc(ze_places[entered].context, &desc, bytes, 0,
				  p);
}

/* Returns true if the device accesses all memory of the process at its address.
 * For other devices the driver imports host pages, also at their address. */
static bool reaches_all(int index)
{
	ze_access_properties access = {.type = ZE_ACCESS_PROPERTIES};

	return !ze.access(ze_places[index].device, &access) &&
	       access.system & ZE_ACCESS_RW;
}

static int ze_host_register(void *host, size_t bytes, unsigned flags)
{
	(void)flags;
	if (reaches_all(entered))
		return ZE_SUCCESS;
	if (!extensions[entered].host_import ||
	    !extensions[entered].host_release)
		return ZE_UNSUPPORTED_FEATURE;
	return (int)extensions[entered].host_import(ze_places[entered].driver,
						    host, bytes);
}

static int ze_host_unregister(void *host)
{
	if (reaches_all(entered))
		return ZE_SUCCESS;
	return (int)extensions[entered].host_release(ze_places[entered].driver,
						     host);
}

static int ze_host_pointer(void **device, void *host, unsigned flags)
{
	(void)flags;
	*device = host;
	return ZE_SUCCESS;
}

/* ---- memory of other processes ---- */

static size_t round_up(size_t bytes, size_t to)
{
	return (bytes + to - 1) / to * to;
}

/* Returns true if the descriptor is that of this allocation alone. The driver
 * makes an allocation in one of its memory objects. That may be a pool for
 * many allocations: they share one id, the driver does not tell the offset in
 * the pool, and the descriptor can be closed with any of them. Or the object
 * is only a part of the allocation: on a device of several tiles, each tile
 * has one. */
static bool is_whole(int fd, size_t bytes)
{
	off_t size = lseek(fd, 0, SEEK_END);
	size_t page = bytes < LARGE_BYTES ? PAGE_BYTES : LARGE_BYTES;

	return size < 0 ||
	       ((size_t)size >= bytes && (size_t)size <= round_up(bytes, page));
}

/* The handle begins with the descriptor of the memory. */
static int ze_ipc_get(void *handle, void *base)
{
	ze_ipc *ipc = handle;
	ze_context context = ze_places[entered].context;
	void *start = NULL;
	size_t size = 0;
	int error, fd;

	memset(ipc, 0, sizeof(*ipc));
	error = (int)ze.range(context, base, &start, &size);
	if (!error)
		error = (int)ze.ipc_get(context, base, ipc);
	if (error)
		return error;
	memcpy(&fd, ipc->data, sizeof(fd));
	return is_whole(fd, size) ? ZE_SUCCESS : ZE_UNSUPPORTED_FEATURE;
}

/* Make a handle of another process usable here. It begins with a descriptor of
 * that process. Newer drivers put the owner's pid behind it and an offset, and
 * fetch the descriptor themselves. Older ones have the kind of the memory
 * there, which is 0; then this process fetches the descriptor (*fd, which the
 * caller closes) and puts it into the handle. */
static int adopt(ze_ipc *ipc, pid_t owner, int *fd)
{
	int theirs, pid;
	pid_t named;

	*fd = -1;
	memcpy(&named, ipc->data + IPC_OWNER, sizeof(named));
	if (named == owner)
		return ZE_SUCCESS;
	memcpy(&theirs, ipc->data, sizeof(int));
	pid = descriptors_high((int)syscall(SYS_pidfd_open, owner, 0));
	if (pid < 0)
		return ZE_INVALID_ARGUMENT;
	*fd = descriptors_high((int)syscall(SYS_pidfd_getfd, pid, theirs, 0));
	close(pid);
	if (*fd < 0) {
		log_warn("ze:%d: a descriptor of process %d cannot be copied: "
			 "kernel.yama.ptrace_scope may forbid it",
			 entered, (int)owner);
		return ZE_INVALID_ARGUMENT;
	}
	memcpy(ipc->data, fd, sizeof(int));
	return ZE_SUCCESS;
}

static int ze_ipc_open(void **p, const void *handle, pid_t owner)
{
	const struct ze_place *place = &ze_places[entered];
	ze_ipc ipc = *(const ze_ipc *)handle;
	int fd, error;

	if (owner == getpid())
		return ZE_INVALID_ARGUMENT;
	error = adopt(&ipc, owner, &fd);
	if (!error)
		error = (int)ze.ipc_open(place->context, place->device, ipc, 0,
					 p);
	if (fd >= 0)
		close(fd);
	return error;
}

static int ze_ipc_close(void *base)
{
	return (int)ze.ipc_close(ze_places[entered].context, base);
}

/* The driver keeps its own descriptor, so hand out a duplicate. */
static int ze_range_fd(int *fd, const void *at, void *base, size_t bytes,
		       uint64_t *skip)
{
	struct ze_export_fd exported = {
		.type = ZE_EXPORT_FD, .flags = ZE_DMA_BUF, .fd = -1};
	ze_alloc_properties p = {.type = ZE_ALLOC_PROPERTIES,
				 .next = &exported};
	ze_context context = ze_places[entered].context;
	ze_device device = NULL;
	void *start = NULL;
	size_t size = 0;
	int error;

	(void)at;
	error = (int)ze.range(context, base, &start, &size);
	if (error)
		return error;
	if (start != base || bytes > round_up(size, PAGE_BYTES))
		return ZE_UNSUPPORTED_FEATURE;
	error = (int)ze.alloc_properties(context, base, &p, &device);
	if (error)
		return error;
	if (exported.fd < 0 || !is_whole(exported.fd, size))
		return ZE_UNSUPPORTED_FEATURE;
	*skip = 0;
	*fd = fcntl(exported.fd, F_DUPFD_CLOEXEC, 3);
	return *fd < 0 ? ZE_OUT_OF_HOST_MEMORY : ZE_SUCCESS;
}

/* ---- streams ---- */

/* Returns true if the list is one of that device, also if the loader is too old
 * to tell. */
static bool is_list_of(int index, ze_command_list list)
{
	ze_device device = NULL;

	if (!ze.list_device || ze.list_device(list, &device))
		return true;
	for (int i = 0; i < ntiles; i++)
		if (tiles[i].device == device)
			return tiles[i].index == index;
	return false;
}

/* Returns true if the list is on the queue of the library's lists, which would
 * then wait behind it where priorities do not separate them. Returns false if
 * the loader is too old to tell. */
static bool is_on_ours(int index, ze_command_list list)
{
	const struct ze_place *place = &ze_places[index];
	uint32_t ordinal = 0, queue = 0;

	return place->ours && ze.list_ordinal && ze.list_index &&
	       !ze.list_ordinal(list, &ordinal) &&
	       !ze.list_index(list, &queue) && ordinal == place->ordinal &&
	       queue == place->ours;
}

static int ze_stream_open(int index, void *native, void **s, bool *fits)
{
	struct ze_list *list = NULL;
	int error;

	*fits = !native || is_list_of(index, native);
	if (*fits && native && is_on_ours(index, native)) {
		log_warn("ze:%d: a command list on queue %u, where the library "
			 "has its own: they would wait for each other",
			 index, ze_places[index].ours);
		return ZE_UNSUPPORTED_FEATURE;
	}
	if (!*fits)
		return ZE_SUCCESS;
	error = ze_list_of(index, native, &list);
	*s = list;
	return error;
}

static int ze_stream_close(void *s)
{
	ze_list_close(s);
	return ZE_SUCCESS;
}

static int ze_stream_create(void **s, unsigned flags, int priority)
{
	struct ze_list *list = NULL;
	int error = ze_list_new(entered, (uint32_t)priority, &list);

	(void)flags;
	*s = list;
	return error;
}

static int ze_priorities(int *least, int *greatest)
{
	*least = ZE_PRIORITY_NORMAL;
	*greatest = ZE_PRIORITY_HIGH;
	return ZE_SUCCESS;
}

static int ze_event_create(void **event, unsigned flags)
{
	struct ze_mark *mark = NULL;
	int error = ze_mark_create(&mark);

	(void)flags;
	*event = mark;
	return error;
}

static int ze_wait_event(void *list, void *mark, unsigned flags)
{
	(void)flags;
	return ze_mark_wait(list, mark);
}

static int ze_copy(void *dst, const void *src, size_t bytes, void *list)
{
	return ze_list_copy(list, dst, src, bytes);
}

static int ze_event_destroy(void *mark)
{
	return ze_mark_destroy(mark);
}

static int ze_event_record(void *mark, void *list)
{
	return ze_mark_set(mark, list);
}

static int ze_event_query(void *mark)
{
	return ze_mark_query(mark);
}

static int ze_host_function(void *list, gpu_host_fn fn, void *arg)
{
	return ze_list_call(list, fn, arg);
}

/* ---- kernels ---- */

/* The device may lack something that the module needs, such as float64. */
static bool ze_wrong_image(int error)
{
	return error == ZE_BUILD_FAILURE || error == ZE_LINK_FAILURE ||
	       error == ZE_INVALID_NATIVE_BINARY ||
	       error == ZE_UNSUPPORTED_FEATURE;
}

static dicomm_result_t ze_compile(int index, int module, void **code, char *why,
				  size_t len)
{
	(void)index;
	(void)module;
	(void)code;
	snprintf(why, len, "Level Zero cannot compile source");
	return DICOMM_ERR_UNSUPPORTED;
}

/* Log what the driver's compiler reports, if anything. */
static void tell_log(ze_log log)
{
	char text[1024] = "";
	size_t len = sizeof(text);

	if (!log)
		return;
	if (!ze.log_text(log, &len, text) && *text)
		log_info("ze:%d: %.1000s", entered, text);
	ze.log_destroy(log);
}

/* Devices of one context access each other's memory without further calls, if
 * they can at all. */
static int ze_peer(int index, int other)
{
	const struct ze_place *from = &ze_places[index];
	const struct ze_place *to = &ze_places[other];
	uint8_t can = 0;
	int error;

	if (from->context != to->context)
		return ZE_UNSUPPORTED_FEATURE;
	error = (int)ze.reaches(from->device, to->device, &can);
	return error || can ? error : ZE_UNSUPPORTED_FEATURE;
}

static int ze_module_load(void **m, const void *code, size_t bytes)
{
	const struct ze_place *place = &ze_places[entered];
	const ze_module_desc desc = {.type = ZE_MODULE_DESC,
				     .format = ZE_FORMAT_SPIRV,
				     .bytes = bytes,
				     .code = code};
	ze_module made = NULL;
	ze_log log = NULL;
	int error;

	error = (int)ze.module_create(place->context, place->device, &desc,
				      &made, &log);
	*m = made;
	tell_log(log);
	return error;
}

/* The kernel accesses memory beyond its arguments: a fold computes the
 * addresses of further sources. So it needs indirect access. */
static int ze_module_function(void **function, void *m, const char *name)
{
	const ze_kernel_desc desc = {.type = ZE_KERNEL_DESC, .name = name};
	ze_kernel kernel = NULL;
	int error = (int)ze.kernel_create(m, &desc, &kernel);

	if (!error)
		error = (int)ze.group_size(kernel, LAUNCH_BLOCK, 1, 1);
	if (!error)
		error = (int)ze.indirect(kernel, ZE_INDIRECT_ALL);
	*function = kernel;
	return error;
}

static int ze_launch(void *kernel, unsigned blocks, unsigned by, unsigned bz,
		     unsigned threads, unsigned ty, unsigned tz,
		     unsigned shared, void *list, void **args, void **extra)
{
	(void)by;
	(void)bz;
	(void)threads;
	(void)ty;
	(void)tz;
	(void)shared;
	(void)extra;
	return ze_list_launch(list, kernel, blocks, args);
}

/* ---- the shape of the others ---- */

/* A list that is not immediate runs when the user executes it, or never.
 * gpu/stream.c refuses it like a captured stream. Loaders that are too old to
 * tell fail here, and the list is accepted. */
static int ze_capturing(void *list, int *immediate)
{
	uint8_t is = ZE_IMMEDIATE;
	int error = ze_list_is_immediate(list, &is);

	*immediate = is;
	return error;
}

_Static_assert(sizeof(ze_ipc) == sizeof(((struct accel_handle *)0)->vendor),
	       "handle");

/* Lists have no captures into graphs, write no words of memory, and wait for
 * none: see stream_wait.h. */
static struct gpu_driver ze_gpu = {
	.which = GPU_ZE,
	.kind = "ze",
	.vendor = "Intel",
	.images = "spirv",
	.captured = "is a command list that is not immediate",
	.out_of_memory = ZE_OUT_OF_DEVICE_MEMORY,
	.out_of_host_memory = ZE_OUT_OF_HOST_MEMORY,
	.not_supported = ZE_UNSUPPORTED_FEATURE,
	.not_ready = ZE_NOT_READY,
	.capture_none = ZE_IMMEDIATE,
	.load = ze_load,
	.error_text = ze_error_text,
	.enter = ze_enter,
	.units = ze_units,
	.details = ze_details,
	.owner = ze_owner,
	.has_dmabuf = ze_has_dmabuf,
	.buffer_id = ze_buffer_id,
	.peer = ze_peer,
	.ipc_open = ze_ipc_open,
	.range_fd = ze_range_fd,
	.stream_open = ze_stream_open,
	.stream_close = ze_stream_close,
	.copy = ze_copy,
	.wrong_image = ze_wrong_image,
	.compile = ze_compile,
	.module_load = ze_module_load,
	.waits_probe = ze_stream_wait_probe,
	.writes_probe = gpu_event_probe,
	.api = {.alloc = ze_alloc,
		.free = ze_free,
		.range = ze_range,
		.ipc_get = ze_ipc_get,
		.ipc_close = ze_ipc_close,
		.host_alloc = ze_host_alloc,
		.host_register = ze_host_register,
		.host_unregister = ze_host_unregister,
		.host_pointer = ze_host_pointer,
		.host_function = ze_host_function,
		.capturing = ze_capturing,
		.priorities = ze_priorities,
		.stream_create = ze_stream_create,
		.stream_destroy = ze_stream_close,
		.module_function = ze_module_function,
		.launch = ze_launch,
		.event_create = ze_event_create,
		.event_destroy = ze_event_destroy,
		.event_record = ze_event_record,
		.event_query = ze_event_query,
		.wait_event = ze_wait_event},
	GPU_LOCKS,
};

GPU_ACCEL(ze, NULL, ze, ze_stream_wait_held, NULL)
