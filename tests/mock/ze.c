/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A mock of Level Zero: the functions of ze/api.h over devices that do not
 * exist. It is stricter than the real one where order is concerned: two things
 * on a list with no barrier between them are an error, and so is an event that
 * is used again while something still waits for it. It takes modules of SPIR-V,
 * not where MOCK_IMAGES=refused is in the environment, and of a kernel that one
 * has it runs the twin that the C compiler made. Each list is a queue of its
 * own; with MOCK_QUEUES=n, lists are on n queues, and one that waits holds up
 * those of its queue. Where MOCK_DESCRIPTOR_BYTES is set, descriptors are of so
 * much, as they are of a pool, or of one of several tiles. With MOCK_OLD it is
 * one of before 2024, without what came later and without dma-bufs.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/accel/ze/api.h"
#include "tests/mock/driver.h"
#include "tests/mock/object.h"

#define MAX_QUEUES 4

struct ze_driver_ {
	int unused;
};
struct ze_context_ {
	int unused;
};
struct ze_device_ {
	int index;
};

/* In memory that a stream can wait for */
struct ze_event_ {
	_Atomic uint32_t happened;
	_Atomic int uses;     /* queued, and not done */
	_Atomic bool by_list; /* not the host makes it happen */
	int device;           /* of that list */
};

struct ze_pool_ {
	uint32_t count;
	struct ze_event_ *events;
};

struct ze_module_ {
	const char *code;
	size_t bytes;
	struct ze_module_ *next;
};

struct ze_kernel_ {
	char name[32];
	int nargs;
	bool sized, indirect;
	uint64_t args[OBJECT_ARGS];
	struct ze_kernel_ *next;
};

/* What was appended to a list since its last barrier */
struct state {
	struct driver_stream *list;
	bool open;
	struct state *next;
};

/* Descriptors are the driver's. */
struct exported {
	uint64_t id;
	int fd;
	struct exported *next;
};

static struct ze_driver_ driver;
static struct ze_context_ context;
static struct ze_device_ devices[DRIVER_DEVICES];
static bool started;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct state *states;
/* They stay; reachable, so that no leak is seen in them. */
static struct ze_module_ *modules;
static struct ze_kernel_ *kernels;
static struct ze_pool_ *pools[4096];
static int npools;
#ifndef MOCK_OLD
static struct exported *exports;
#endif

/* The errors of this driver for those of all */
static ze_result result(int error)
{
	switch (error) {
	case DRIVER_NOT_READY:
		return ZE_NOT_READY;
	case DRIVER_OUT_OF_MEMORY:
		return ZE_OUT_OF_DEVICE_MEMORY;
	case DRIVER_INVALID_VALUE:
	case DRIVER_INVALID_HANDLE:
	case DRIVER_INVALID_CONTEXT:
		return ZE_INVALID_ARGUMENT;
	case DRIVER_ILLEGAL_ADDRESS:
		return ZE_DEVICE_LOST;
	case DRIVER_NOT_SUPPORTED:
		return ZE_UNSUPPORTED_FEATURE;
	case DRIVER_WOULD_HANG:
		return ZE_UNKNOWN;
	default:
		return (ze_result)error;
	}
}

#define BEGIN(call)                            \
	do {                                   \
		int begin_ = call;             \
		if (begin_)                    \
			return result(begin_); \
	} while (0)
#define CALL BEGIN(driver_call())
#define SYNC_CALL BEGIN(driver_sync_call())
#define EXPORT __attribute__((visibility("default")))

#define F(name, symbol, parameters) ze_result symbol parameters;
ZE_FUNCTIONS(F)
#ifndef MOCK_OLD
ZE_MORE_FUNCTIONS(F)
#endif
#undef F

/* For tests: events that were made so far */
EXPORT int mock_events(void);
EXPORT int mock_events(void)
{
	int n = 0;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < npools; i++)
		n += (int)pools[i]->count;
	pthread_mutex_unlock(&lock);
	return n;
}

static bool is_device(ze_device d)
{
	return d >= devices && d < devices + DRIVER_DEVICES;
}

static struct driver_stream *stream_of(ze_command_list list)
{
	return (struct driver_stream *)list;
}

/* ---- what there is ---- */

EXPORT ze_result zeInit(uint32_t flags)
{
	CALL;
	if (flags != ZE_GPU_ONLY)
		return ZE_INVALID_ENUMERATION;
	started = true;
	for (int i = 0; i < DRIVER_DEVICES; i++)
		devices[i].index = i;
	return ZE_SUCCESS;
}

EXPORT ze_result zeDriverGet(uint32_t *n, ze_driver *drivers)
{
	CALL;
	if (!started)
		return ZE_UNINITIALIZED;
	if (*n)
		*drivers = &driver;
	*n = 1;
	return ZE_SUCCESS;
}

EXPORT ze_result zeDriverGetApiVersion(ze_driver d, ze_api_version *version)
{
	CALL;
	if (d != &driver)
		return ZE_INVALID_NULL_HANDLE;
#ifdef MOCK_OLD
	*version = 0x10005;
#else
	*version = 0x1000c;
#endif
	return ZE_SUCCESS;
}

EXPORT ze_result zeDeviceGet(ze_driver d, uint32_t *n, ze_device *found)
{
	CALL;
	if (d != &driver)
		return ZE_INVALID_NULL_HANDLE;
	for (uint32_t i = 0; i < *n && i < DRIVER_DEVICES; i++)
		found[i] = &devices[i];
	*n = DRIVER_DEVICES;
	return ZE_SUCCESS;
}

EXPORT ze_result zeDeviceGetSubDevices(ze_device d, uint32_t *n,
				       ze_device *found)
{
	CALL;
	(void)found;
	*n = 0;
	return is_device(d) ? ZE_SUCCESS : ZE_INVALID_NULL_HANDLE;
}

EXPORT ze_result zeDeviceGetProperties(ze_device d, ze_device_properties *p)
{
	CALL;
	if (!is_device(d) || p->type != ZE_DEVICE_PROPERTIES)
		return ZE_INVALID_ARGUMENT;
	p->kind = ZE_KIND_GPU;
	p->slices = 1;
	p->subslices_per_slice = 2;
	p->eus_per_subslice = 8;
	snprintf(p->name, sizeof(p->name), "mock GPU");
	return ZE_SUCCESS;
}

/* 0: as many as there are lists */
static uint32_t queues(void)
{
	const char *text = getenv("MOCK_QUEUES");
	uint32_t n = text ? (uint32_t)atoi(text) : 0;

	return n < MAX_QUEUES ? n : MAX_QUEUES;
}

/* The first only copies. */
EXPORT ze_result zeDeviceGetCommandQueueGroupProperties(ze_device d,
							uint32_t *n,
							ze_group_properties *g)
{
	CALL;
	if (!is_device(d) || *n < 2 || g->type != ZE_GROUP_PROPERTIES)
		return ZE_INVALID_ARGUMENT;
	g[0].flags = 2;
	g[1].flags = 2 | ZE_GROUP_COMPUTE;
	g[1].queues = queues() ? queues() : 1;
	*n = 2;
	return ZE_SUCCESS;
}

EXPORT ze_result zeDeviceGetMemoryAccessProperties(ze_device d,
						   ze_access_properties *p)
{
	CALL;
	if (!is_device(d) || p->type != ZE_ACCESS_PROPERTIES)
		return ZE_INVALID_ARGUMENT;
	p->system = 0;
	return ZE_SUCCESS;
}

/* Of one context, no more is needed. */
EXPORT ze_result zeDeviceCanAccessPeer(ze_device d, ze_device other,
				       uint8_t *can)
{
	CALL;
	if (!is_device(d) || !is_device(other))
		return ZE_INVALID_ARGUMENT;
	*can = driver_can_reach((int)(d - devices), (int)(other - devices));
	if (*can)
		(void)driver_reach((int)(d - devices), (int)(other - devices));
	return ZE_SUCCESS;
}

EXPORT ze_result zeDeviceGetExternalMemoryProperties(ze_device d,
						     ze_external_properties *p)
{
	CALL;
	if (!is_device(d) || p->type != ZE_EXTERNAL_PROPERTIES)
		return ZE_INVALID_ARGUMENT;
#ifdef MOCK_OLD
	p->exports = 0;
#else
	p->exports = ZE_DMA_BUF;
#endif
	return ZE_SUCCESS;
}

EXPORT ze_result zeDevicePciGetPropertiesExt(ze_device d, ze_pci_properties *p)
{
	CALL;
	if (!is_device(d) || p->type != ZE_PCI_PROPERTIES)
		return ZE_INVALID_ARGUMENT;
	p->domain = 0;
	p->bus = 0x17 + (uint32_t)d->index;
	p->device = 0;
	p->function = 0;
	return ZE_SUCCESS;
}

EXPORT ze_result zeContextCreate(ze_driver d, const ze_context_desc *desc,
				 ze_context *c)
{
	CALL;
	if (d != &driver || desc->type != ZE_CONTEXT_DESC)
		return ZE_INVALID_ARGUMENT;
	*c = &context;
	return ZE_SUCCESS;
}

/* ---- memory ---- */

EXPORT ze_result zeMemAllocDevice(ze_context c, const ze_alloc_desc *desc,
				  size_t bytes, size_t alignment, ze_device d,
				  void **p)
{
	SYNC_CALL;
	if (c != &context || desc->type != ZE_ALLOC_DESC || alignment ||
	    !is_device(d))
		return ZE_INVALID_ARGUMENT;
	return result(driver_alloc(d->index, bytes, p));
}

EXPORT ze_result zeMemAllocHost(ze_context c, const ze_host_desc *desc,
				size_t bytes, size_t alignment, void **p)
{
	CALL;
	if (c != &context || desc->type != ZE_HOST_DESC || alignment)
		return ZE_INVALID_ARGUMENT;
	return result(driver_host_alloc(p, bytes));
}

EXPORT ze_result zeMemFreeExt(ze_context c, const ze_free_desc *desc, void *p)
{
	if (c != &context || desc->type != ZE_FREE_DESC ||
	    desc->policy != ZE_FREE_BLOCKING)
		return ZE_INVALID_ARGUMENT;
	return result(driver_free(p, false));
}

/* What is not of an allocation, neither more nor less; -1: what is */
static int other_fd(void)
{
	const char *bytes = getenv("MOCK_DESCRIPTOR_BYTES");
	static int fd = -1;

	if (!bytes)
		return -1;
	if (fd < 0)
		fd = memfd_create("mock-descriptor", MFD_CLOEXEC);
	return ftruncate(fd, atol(bytes)) ? -1 : fd;
}

#ifdef MOCK_OLD
static int exported_fd(const struct driver_memory *m)
{
	(void)m;
	return -1;
}
#else
/* As long as the process is */
static int exported_fd(const struct driver_memory *m)
{
	struct exported *e;
	int fd = -1;

	pthread_mutex_lock(&lock);
	for (e = exports; e && e->id != m->id; e = e->next)
		;
	if (!e && !driver_range_fd(&fd, m->at, m->bytes)) {
		e = calloc(1, sizeof(*e));
		if (e) {
			*e = (struct exported){m->id, fd, exports};
			exports = e;
		}
	}
	fd = e ? e->fd : -1;
	pthread_mutex_unlock(&lock);
	return fd;
}
#endif

EXPORT ze_result zeMemGetAllocProperties(ze_context c, const void *p,
					 ze_alloc_properties *out, ze_device *d)
{
	struct ze_export_fd *fd = out->next;
	struct driver_memory m;

	CALL;
	if (c != &context || !p || out->type != ZE_ALLOC_PROPERTIES)
		return ZE_INVALID_ARGUMENT;
	out->kind = 0;
	*d = NULL;
	if (!driver_find(p, &m))
		return ZE_SUCCESS;
	out->kind = m.managed ? ZE_MEMORY_SHARED : ZE_MEMORY_DEVICE;
	out->id = m.id;
	*d = &devices[m.device];
	if (!fd)
		return ZE_SUCCESS;
	if (fd->type != ZE_EXPORT_FD || fd->flags != ZE_DMA_BUF)
		return ZE_INVALID_ENUMERATION;
	fd->fd = other_fd() < 0 ? exported_fd(&m) : other_fd();
	return fd->fd < 0 ? ZE_UNSUPPORTED_FEATURE : ZE_SUCCESS;
}

EXPORT ze_result zeMemGetAddressRange(ze_context c, const void *p, void **base,
				      size_t *bytes)
{
	struct driver_memory m;

	CALL;
	if (c != &context || !driver_find(p, &m))
		return ZE_INVALID_ARGUMENT;
	*base = m.at;
	*bytes = m.bytes;
	return ZE_SUCCESS;
}

/* A descriptor, and what a new driver adds so that its own twin can get it */
struct handle {
	int fd, kind;
	uint64_t offset;
	int pid;
};

EXPORT ze_result zeMemGetIpcHandle(ze_context c, const void *p, ze_ipc *out)
{
	struct handle h = {.fd = -1};
	struct driver_memory m;

	CALL;
	if (c != &context || !driver_find(p, &m) || m.imported || p != m.at)
		return ZE_INVALID_ARGUMENT;
	h.fd = other_fd() < 0 ? m.fd : other_fd();
#ifdef MOCK_OLD
	h.offset = (uint64_t)getpid(); /* as it may happen to be */
#else
	h.pid = getpid();
#endif
	memset(out, 0, sizeof(*out));
	memcpy(out, &h, sizeof(h));
	return ZE_SUCCESS;
}

EXPORT ze_result zeMemOpenIpcHandle(ze_context c, ze_device d, ze_ipc ipc,
				    uint32_t flags, void **p)
{
	struct handle h;
	char path[64];

	SYNC_CALL;
	memcpy(&h, &ipc, sizeof(h));
	if (c != &context || !is_device(d) || flags)
		return ZE_INVALID_ARGUMENT;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", h.pid ? h.pid : getpid(),
		 h.fd);
	return result(driver_import(d->index, path, p));
}

EXPORT ze_result zeMemCloseIpcHandle(ze_context c, const void *p)
{
	if (c != &context)
		return ZE_INVALID_ARGUMENT;
	return result(driver_free((void *)(uintptr_t)p, true));
}

static ze_result host_import(ze_driver d, void *p, size_t bytes)
{
	SYNC_CALL;
	if (d != &driver)
		return ZE_INVALID_ARGUMENT;
	return result(driver_host_register(p, bytes, false));
}

static ze_result host_release(ze_driver d, void *p)
{
	if (d != &driver)
		return ZE_INVALID_ARGUMENT;
	return result(driver_host_unregister(p));
}

EXPORT ze_result zeDriverGetExtensionFunctionAddress(ze_driver d,
						     const char *name,
						     void **function)
{
	CALL;
	if (d != &driver)
		return ZE_INVALID_NULL_HANDLE;
	*function = NULL;
	if (!strcmp(name, "zexDriverImportExternalPointer"))
		*(__typeof__(host_import) **)function = host_import;
	else if (!strcmp(name, "zexDriverReleaseImportedPointer"))
		*(__typeof__(host_release) **)function = host_release;
	return *function ? ZE_SUCCESS : ZE_INVALID_ARGUMENT;
}

/* ---- lists and events ---- */

static struct driver_stream *made[DRIVER_DEVICES][MAX_QUEUES];

static int queue_get(int device, uint32_t index, struct driver_stream **s)
{
	int error = 0;

	pthread_mutex_lock(&lock);
	if (!made[device][index])
		error = driver_stream_keep(device, &made[device][index]);
	*s = made[device][index];
	pthread_mutex_unlock(&lock);
	return error;
}

EXPORT ze_result zeCommandListCreateImmediate(ze_context c, ze_device d,
					      const ze_queue_desc *desc,
					      ze_command_list *list)
{
	struct driver_stream *s = NULL;
	int error;

	CALL;
	if (c != &context || !is_device(d) || desc->type != ZE_QUEUE_DESC ||
	    desc->ordinal != 1 || desc->mode != ZE_MODE_ASYNCHRONOUS ||
	    desc->priority > ZE_PRIORITY_HIGH ||
	    desc->index >= (queues() ? queues() : 1))
		return ZE_INVALID_ARGUMENT;
	error = queues() ? queue_get(d->index, desc->index, &s)
			 : driver_stream_keep(d->index, &s);
	*list = (ze_command_list)s;
	return result(error);
}

#ifndef MOCK_OLD
static _Atomic(ze_command_list) captured;

/* For tests: this list is not immediate. */
EXPORT void mock_capture(ze_command_list list);
EXPORT void mock_capture(ze_command_list list)
{
	captured = list;
}

EXPORT ze_result zeCommandListGetOrdinal(ze_command_list list,
					 uint32_t *ordinal)
{
	(void)list;
	CALL;
	*ordinal = 1;
	return ZE_SUCCESS;
}

EXPORT ze_result zeCommandListImmediateGetIndex(ze_command_list list,
						uint32_t *index)
{
	CALL;
	*index = 0;
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < DRIVER_DEVICES * MAX_QUEUES; i++)
		if ((ze_command_list)made[i / MAX_QUEUES][i % MAX_QUEUES] ==
		    list)
			*index = i % MAX_QUEUES;
	pthread_mutex_unlock(&lock);
	return ZE_SUCCESS;
}

EXPORT ze_result zeCommandListIsImmediate(ze_command_list list, uint8_t *is)
{
	CALL;
	*is = list != captured;
	return ZE_SUCCESS;
}

EXPORT ze_result zeCommandListGetDeviceHandle(ze_command_list list,
					      ze_device *d)
{
	int index = driver_stream_device(stream_of(list));

	CALL;
	if (index < 0)
		return ZE_INVALID_NULL_HANDLE;
	*d = &devices[index];
	return ZE_SUCCESS;
}
#endif

EXPORT ze_result zeEventPoolCreate(ze_context c, const ze_pool_desc *desc,
				   uint32_t n, ze_device *of, ze_pool *pool)
{
	struct ze_pool_ *p;
	void *at = NULL;
	int error;

	CALL;
	if (c != &context || desc->type != ZE_POOL_DESC || n || of ||
	    desc->flags != ZE_POOL_HOST_VISIBLE || !desc->count)
		return ZE_INVALID_ARGUMENT;
	error = driver_host_alloc(&at, desc->count * sizeof(*p->events));
	if (error)
		return result(error);
	p = calloc(1, sizeof(*p));
	if (!p)
		return ZE_OUT_OF_HOST_MEMORY;
	p->count = desc->count;
	p->events = at;
	memset(at, 0, desc->count * sizeof(*p->events));
	pthread_mutex_lock(&lock);
	if (npools < (int)(sizeof(pools) / sizeof(*pools)))
		pools[npools++] = p;
	pthread_mutex_unlock(&lock);
	*pool = p;
	return ZE_SUCCESS;
}

EXPORT ze_result zeEventCreate(ze_pool pool, const ze_event_desc *desc,
			       ze_event *e)
{
	CALL;
	if (desc->type != ZE_EVENT_DESC || desc->index >= pool->count ||
	    desc->signal != ZE_SCOPE_HOST || desc->wait != ZE_SCOPE_HOST)
		return ZE_INVALID_ARGUMENT;
	*e = &pool->events[desc->index];
	return ZE_SUCCESS;
}

EXPORT ze_result zeEventHostSignal(ze_event e)
{
	if (e->by_list)
		return ZE_INVALID_SYNCHRONIZATION;
	e->happened = 1;
	return ZE_SUCCESS;
}

EXPORT ze_result zeEventHostReset(ze_event e)
{
	if (e->uses) {
		fprintf(stderr, "mock: an event that is waited for is reset\n");
		abort();
	}
	e->happened = 0;
	e->by_list = false;
	return ZE_SUCCESS;
}

EXPORT ze_result zeEventQueryStatus(ze_event e)
{
	CALL;
	if (e->by_list && driver_state(e->device))
		return ZE_DEVICE_LOST;
	return e->happened ? ZE_SUCCESS : ZE_NOT_READY;
}

/* Under the lock. NULL: out of memory */
static struct state *state_of(struct driver_stream *list)
{
	struct state *s = states;

	while (s && s->list != list)
		s = s->next;
	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (s) {
		s->list = list;
		s->next = states;
		states = s;
	}
	return s;
}

/* Something, of which the next thing is not to be: else they have no order. */
static bool opens(ze_command_list list)
{
	struct state *s;
	bool fits;

	pthread_mutex_lock(&lock);
	s = state_of(stream_of(list));
	fits = s && !s->open;
	if (s)
		s->open = true;
	pthread_mutex_unlock(&lock);
	if (!fits)
		fprintf(stderr, "mock: no barrier before what is appended\n");
	return fits;
}

static void closes(ze_command_list list)
{
	struct state *s;

	pthread_mutex_lock(&lock);
	s = state_of(stream_of(list));
	if (s)
		s->open = false;
	pthread_mutex_unlock(&lock);
}

static int event_wait(void *arg)
{
	ze_event e = arg;

	while (!e->happened)
		usleep(50);
	return DRIVER_SUCCESS;
}

static int event_unuse(void *arg)
{
	ze_event e = arg;

	e->uses--;
	return DRIVER_SUCCESS;
}

static int event_happen(void *arg)
{
	ze_event e = arg;

	/* Whoever sees it happen may use it again at once. */
	e->uses--;
	e->happened = 1;
	return DRIVER_SUCCESS;
}

/* What only the host makes happen holds the list. */
static int wait_append(struct driver_stream *s, int device, ze_event e)
{
	int error = e->by_list || e->happened
			    ? driver_push(s, device, event_wait, e)
			    : driver_wait_value(s, device, &e->happened, 1);

	if (error)
		return error;
	e->uses++;
	error = driver_push(s, device, event_unuse, e);
	if (error)
		e->uses--;
	return error;
}

EXPORT ze_result zeCommandListAppendBarrier(ze_command_list list, ze_event e,
					    uint32_t n, ze_event *waits)
{
	struct driver_stream *s = stream_of(list);
	int device = driver_stream_device(s), error = DRIVER_SUCCESS;

	CALL;
	if (device < 0)
		return ZE_INVALID_NULL_HANDLE;
	if (e && (e->by_list || e->happened))
		return ZE_INVALID_SYNCHRONIZATION;
	for (uint32_t i = 0; i < n && !error; i++)
		error = wait_append(s, device, waits[i]);
	if (error || !e) {
		closes(list);
		return result(error);
	}
	e->by_list = true;
	e->device = device;
	e->uses++;
	error = driver_push(s, device, event_happen, e);
	if (error) {
		e->by_list = false;
		e->uses--;
	}
	closes(list);
	return result(error);
}

static const char *overlap(const void *dst, const void *src, size_t bytes)
{
	const char *a = dst, *b = src;

	return a < b + bytes && b < a + bytes ? a : NULL;
}

EXPORT ze_result zeCommandListAppendMemoryCopy(ze_command_list list, void *dst,
					       const void *src, size_t bytes,
					       ze_event e, uint32_t n,
					       ze_event *waits)
{
	struct driver_stream *s = stream_of(list);
	int device = driver_stream_device(s);

	CALL;
	if (device < 0 || e || n || waits || !opens(list))
		return ZE_INVALID_ARGUMENT;
	if (overlap(dst, src, bytes))
		return ZE_OVERLAPPING_REGIONS;
	return result(driver_copy(s, device, dst, src, bytes));
}

/* ---- kernels ---- */

#define SPIRV_MAGIC 0x07230203u

EXPORT ze_result zeModuleCreate(ze_context c, ze_device d,
				const ze_module_desc *desc, ze_module *module,
				ze_log *log)
{
	const char *images = getenv("MOCK_IMAGES");
	struct ze_module_ *m;
	uint32_t magic = 0;

	SYNC_CALL;
	if (log)
		*log = NULL;
	if (c != &context || !is_device(d) || desc->type != ZE_MODULE_DESC ||
	    desc->format != ZE_FORMAT_SPIRV || desc->bytes < sizeof(magic))
		return ZE_INVALID_ARGUMENT;
	memcpy(&magic, desc->code, sizeof(magic));
	if (magic != SPIRV_MAGIC || (images && !strcmp(images, "refused")))
		return ZE_BUILD_FAILURE;
	m = calloc(1, sizeof(*m));
	if (!m)
		return ZE_OUT_OF_HOST_MEMORY;
	m->code = (const char *)desc->code;
	m->bytes = desc->bytes;
	pthread_mutex_lock(&lock);
	m->next = modules;
	modules = m;
	pthread_mutex_unlock(&lock);
	*module = m;
	return ZE_SUCCESS;
}

/* No module of this mock makes one. */
EXPORT ze_result zeModuleBuildLogGetString(ze_log log, size_t *n, char *text)
{
	(void)log;
	(void)n;
	(void)text;
	return ZE_INVALID_NULL_HANDLE;
}

EXPORT ze_result zeModuleBuildLogDestroy(ze_log log)
{
	(void)log;
	return ZE_INVALID_NULL_HANDLE;
}

EXPORT ze_result zeKernelCreate(ze_module m, const ze_kernel_desc *desc,
				ze_kernel *kernel)
{
	struct ze_kernel_ *k;

	SYNC_CALL;
	if (desc->type != ZE_KERNEL_DESC ||
	    strlen(desc->name) >= sizeof(k->name))
		return ZE_INVALID_ARGUMENT;
	if (!memmem(m->code, m->bytes, desc->name, strlen(desc->name) + 1))
		return ZE_INVALID_KERNEL_NAME;
	k = calloc(1, sizeof(*k));
	if (!k)
		return ZE_OUT_OF_HOST_MEMORY;
	snprintf(k->name, sizeof(k->name), "%s", desc->name);
	k->nargs = object_arguments(k->name);
	pthread_mutex_lock(&lock);
	k->next = kernels;
	kernels = k;
	pthread_mutex_unlock(&lock);
	*kernel = k;
	return ZE_SUCCESS;
}

EXPORT ze_result zeKernelSetGroupSize(ze_kernel k, uint32_t x, uint32_t y,
				      uint32_t z)
{
	CALL;
	k->sized = x == 256 && y == 1 && z == 1;
	return k->sized ? ZE_SUCCESS : ZE_INVALID_ARGUMENT;
}

EXPORT ze_result zeKernelSetIndirectAccess(ze_kernel k, uint32_t flags)
{
	CALL;
	k->indirect = flags == ZE_INDIRECT_ALL;
	return k->indirect ? ZE_SUCCESS : ZE_INVALID_ARGUMENT;
}

EXPORT ze_result zeKernelSetArgumentValue(ze_kernel k, uint32_t i, size_t bytes,
					  const void *value)
{
	CALL;
	if (i >= (uint32_t)k->nargs || bytes != sizeof(uint64_t))
		return ZE_INVALID_ARGUMENT;
	memcpy(&k->args[i], value, bytes);
	return ZE_SUCCESS;
}

struct block_run {
	const struct ze_kernel_ *kernel;
	uint64_t args[OBJECT_ARGS];
};

static int run_kernel(void *arg)
{
	struct block_run *r = arg;
	int error = object_run(r->kernel->name, r->args);

	free(r);
	return error;
}

/* Arguments are those of now. */
EXPORT ze_result zeCommandListAppendLaunchKernel(ze_command_list list,
						 ze_kernel k,
						 const ze_group_count *count,
						 ze_event e, uint32_t n,
						 ze_event *waits)
{
	struct driver_stream *s = stream_of(list);
	int device = driver_stream_device(s), error;
	struct block_run *r;

	CALL;
	if (device < 0 || e || n || waits || !count->x || count->y != 1 ||
	    count->z != 1 || !k->sized || !k->indirect ||
	    k->args[k->nargs - 1] != (uint64_t)count->x * 256 || !opens(list))
		return ZE_INVALID_ARGUMENT;
	r = calloc(1, sizeof(*r));
	if (!r)
		return ZE_OUT_OF_HOST_MEMORY;
	r->kernel = k;
	memcpy(r->args, k->args, sizeof(r->args));
	error = driver_push(s, device, run_kernel, r);
	if (error)
		free(r);
	return result(error);
}
