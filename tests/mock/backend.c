/* SPDX-License-Identifier: BSD-3-Clause */
/* What every backend for GPUs must do, tried on a mock of its driver. */
#include "tests/mock/backend.h"

#include <check.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/accel/host/memory.h"
#include "src/accel/reduce/reduce.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "tests/mock/driver.h"
#include "tests/support/element.h"
#include "tests/support/leaks.h"
#include "tests/support/runner.h"
#include "tests/support/streams.h"

#define OK STREAMS_OK
#define BYTES 300000

static const struct accel *accel;
static const struct accel_work *work;
/* Each in a process of its own: there is one driver of a name. */
enum mode {
	MODE_DRIVER,
	MODE_BETWEEN,
	MODE_OLD,         /* without a compiler: kernels are images or none */
	MODE_COMPILED,    /* takes no images */
	MODE_HOST_REDUCE, /* nor is there a compiler: the host reduces */
	MODES
};

static const char *const mode_names[MODES] = {
	[MODE_DRIVER] = "driver",
	[MODE_BETWEEN] = "driver between",
	[MODE_OLD] = "old driver",
	[MODE_COMPILED] = "kernels compiled at run time",
	[MODE_HOST_REDUCE] = "no kernels",
};

static bool old, between, kernels, compiled, host_reduce;
static const struct backend *tested;

static struct {
	__typeof__(mock_fail) *inject;
	__typeof__(mock_pending) *pending;
	__typeof__(mock_delay) *delay;
	__typeof__(mock_live) *live;
	__typeof__(mock_hangs) *hangs;
	__typeof__(mock_writes) *writes;
	__typeof__(mock_calls) *calls;
	__typeof__(mock_break) *fail_device;
	__typeof__(mock_capture_blocking) *capture_blocking;
	__typeof__(mock_capture_mode) *capture_mode;
	__typeof__(mock_peek) *peek;
	__typeof__(mock_manage) *manage;
	__typeof__(mock_synced) *synced;
	__typeof__(mock_stream) *stream;
	__typeof__(mock_stream_destroy) *stream_destroy;
	/* Of some mocks only */
	void (*capture)(void *stream);
	int (*events)(void);
	int (*last_error)(int error);
	void *hsa; /* of ROCm 5.6 and later */
} mock;

static bool has_dmabuf(void)
{
	return !old && (!between || mock.hsa);
}

/* Is it memory that tells the host how far a stream is? */
static bool writes(void)
{
	return tested->writes && !old;
}

static void *open_mock(const char *file)
{
	const char *top = getenv("top_builddir");
	char path[4096];
	void *lib;

	snprintf(path, sizeof(path), "%s/%s", top ? top : ".", file);
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		printf("%s\n", dlerror());
	return lib;
}

static bool load_compilers(const struct backend *b)
{
	if (compiled && b->unfit_compiler)
		return open_mock(b->unfit_compiler) &&
		       open_mock(b->old_compiler);
	if (between && b->between_compiler)
		return open_mock(b->between_compiler);
	return !b->compiler || open_mock(b->compiler);
}

/* The backend asks for its driver and its compiler by name, and gets those of
 * that name that are loaded already. */
static bool load_mocks(const struct backend *b)
{
	void *lib = open_mock(old       ? b->old_mock
			      : between ? b->between_mock
					: b->mock);

	if (!lib || !load_compilers(b))
		return false;
	*(void **)&mock.inject = dlsym(lib, "mock_fail");
	*(void **)&mock.pending = dlsym(lib, "mock_pending");
	*(void **)&mock.delay = dlsym(lib, "mock_delay");
	*(void **)&mock.live = dlsym(lib, "mock_live");
	*(void **)&mock.hangs = dlsym(lib, "mock_hangs");
	*(void **)&mock.writes = dlsym(lib, "mock_writes");
	*(void **)&mock.calls = dlsym(lib, "mock_calls");
	*(void **)&mock.fail_device = dlsym(lib, "mock_break");
	*(void **)&mock.capture_blocking = dlsym(lib, "mock_capture_blocking");
	*(void **)&mock.capture_mode = dlsym(lib, "mock_capture_mode");
	*(void **)&mock.peek = dlsym(lib, "mock_peek");
	*(void **)&mock.manage = dlsym(lib, "mock_manage");
	*(void **)&mock.synced = dlsym(lib, "mock_synced");
	*(void **)&mock.stream = dlsym(lib, "mock_stream");
	*(void **)&mock.stream_destroy = dlsym(lib, "mock_stream_destroy");
	*(void **)&mock.capture = dlsym(lib, "mock_capture");
	*(void **)&mock.events = dlsym(lib, "mock_events");
	*(void **)&mock.last_error = dlsym(lib, "mock_last_error");
	mock.hsa = dlsym(lib, "hsa_amd_portable_export_dmabuf");
	if (!mock.hsa)
		mock.hsa = dlsym(lib, "mock_hsa_export");
	return mock.inject && mock.pending && mock.delay && mock.live &&
	       mock.hangs && mock.writes && mock.calls && mock.fail_device &&
	       mock.capture_blocking && mock.capture_mode && mock.peek &&
	       mock.manage && mock.synced && mock.stream &&
	       mock.stream_destroy &&
	       (mock.capture || (old && b->silent_when_old));
}

static void teardown(void)
{
	streams_teardown();
	ck_assert_int_eq(mock.live(), 0);
	ck_assert_int_eq(mock.hangs(), 0);
	ck_assert_int_eq(mock.capture_mode(), 0);
	/* Of what failed here the user hears from us, and from nobody else. */
	if (mock.last_error)
		ck_assert_int_eq(mock.last_error(0), 0);
}

/* ---- devices and memory ---- */

START_TEST(devices_are_described)
{
	dicomm_device_info_t info;
	char why[128] = "untouched", name[32];

	ck_assert_int_eq(accel->count(why, sizeof(why)), DRIVER_DEVICES);
	ck_assert_str_eq(why, "untouched");
	OK(accel->describe(1, &info));
	snprintf(name, sizeof(name), "%s:1", accel->name);
	ck_assert_str_eq(info.name, name);
	ck_assert_str_eq(info.pci, "0000:18:00.0");
	ck_assert_ptr_nonnull(strstr(info.description, "mock"));
	ck_assert_int_eq(accel->describe(2, &info),
			 DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_int_eq(accel->describe(-1, &info),
			 DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_uint_eq(work->caps(0),
			  ACCEL_IPC | ACCEL_MAP_HOST | ACCEL_FLUSH |
				  ACCEL_FLUSH_OTHERS |
				  (has_dmabuf() ? ACCEL_DMABUF : 0));
	ck_assert_uint_eq(work->caps(2), 0);
}
END_TEST

START_TEST(memory_knows_its_device)
{
	struct accel_owner owner = {.index = 7};
	struct accel_export where;
	char *p, *q;
	size_t offset;

	ck_assert(accel->loaded());
	OK(accel->alloc(0, BYTES, (void **)&p));
	OK(accel->alloc(1, 1, (void **)&q));
	ck_assert(work->owner(p + BYTES - 1, &owner));
	ck_assert_int_eq(owner.index, 0);
	ck_assert(!owner.managed && !owner.apart);
	ck_assert(work->owner(q, &owner));
	ck_assert_int_eq(owner.index, 1);
	owner.index = 7;
	ck_assert(!work->owner(&owner, &owner));
	ck_assert(!work->owner(NULL, &owner));
	ck_assert_int_eq(owner.index, 7);
	ck_assert(!host_memory_find(p, 1, &where, &offset));
	OK(accel->free(p));
	ck_assert(!work->owner(p, &owner));
	OK(accel->free(q));
	ck_assert_int_eq(accel->free(q), DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_int_eq(accel->free(NULL), DICOMM_ERR_INVALID_ARGUMENT);
}
END_TEST

START_TEST(what_cannot_be_allocated_is_refused)
{
	void *p = &p;

	ck_assert_int_eq(accel->alloc(0, 0, &p), DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_int_eq(accel->alloc(9, 1, &p), DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_int_eq(accel->alloc(0, (size_t)1 << 50, &p),
			 DICOMM_ERR_NO_MEMORY);
	ck_assert_ptr_nonnull(strstr(log_last_error(), "1125899906842624"));
	ck_assert_ptr_eq(p, &p);
}
END_TEST

/* Else the mock would prove little. */
START_TEST(a_host_that_touches_memory_dies)
{
	volatile char *p = streams_alloc(1);
	pid_t child = fork();
	int status;

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		signal(SIGSEGV, SIG_DFL);
		_exit(*p ? 1 : 0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSIGNALED(status));
	ck_assert_int_eq(WTERMSIG(status), SIGSEGV);
	OK(accel->free((void *)(uintptr_t)p));
}
END_TEST

START_TEST(host_memory_is_mapped_once_for_all)
{
	char *p = aligned_alloc(4096, 8192);
	void *first = NULL, *second = NULL;
	dicomm_result_t status;

	OK(work->map_host(0, p, 8192, false, &first));
	OK(work->map_host(1, p, 8192, false, &second));
	ck_assert_ptr_eq(first, second);
	ck_assert_ptr_nonnull(mock.peek(p + 8191));
	status = work->map_host(1, p, 4096, false, &second);
	ck_assert_int_eq(status, DICOMM_ERR_INVALID_ARGUMENT);
	work->unmap_host(0, p);
	ck_assert_ptr_nonnull(mock.peek(p));
	work->unmap_host(1, p);
	ck_assert_ptr_null(mock.peek(p));
	free(p);
}
END_TEST

/* Of a file, by a mapping for loads, where that can become another */
static char *map_for_loads(int access)
{
	char path[64], *p;
	int fd = memfd_create("loads", MFD_CLOEXEC), again;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, 4096), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, access | O_CLOEXEC);
	ck_assert_int_ge(again, 0);
	p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, again, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	close(again);
	close(fd);
	return p;
}

/* Drivers pin what may be written, and some what may not. */
START_TEST(host_memory_that_is_loaded_only_is_mapped)
{
	bool only = !strcmp(accel->name, "cuda");
	char *p = map_for_loads(O_RDWR), *q = map_for_loads(O_RDONLY);
	void *device = NULL;

	OK(work->map_host(0, p, 4096, true, &device));
	ck_assert_ptr_nonnull(mock.peek(p + 4095));
	work->unmap_host(0, p);
	ck_assert_int_ne(work->map_host(0, q, 4096, true, &device),
			 DICOMM_SUCCESS);
	setenv("MOCK_READ_ONLY", "1", 1);
	ck_assert(!work->map_host(0, q, 4096, true, &device) == only);
	unsetenv("MOCK_READ_ONLY");
	if (only)
		work->unmap_host(0, q);
	ck_assert_ptr_null(mock.peek(q));
	munmap(p, 4096);
	munmap(q, 4096);
}
END_TEST

/* Also one at the same address, when the former is no more */
START_TEST(each_allocation_has_a_number_of_its_own)
{
	struct accel_allocation a, b;
	char *p = streams_alloc(BYTES), *q = streams_alloc(BYTES);

	OK(work->allocation(p + 12345, &a));
	ck_assert_ptr_eq(a.base, p);
	ck_assert_uint_ge(a.bytes, BYTES);
	OK(work->allocation(q, &b));
	ck_assert_uint_ne(a.id, b.id);
	OK(accel->free(p));
	ck_assert_int_eq(work->allocation(p, &b), DICOMM_ERR_INVALID_ARGUMENT);
	p = streams_alloc(BYTES);
	OK(work->allocation(p, &b));
	ck_assert_uint_ne(a.id, b.id);
	ck_assert_int_eq(work->allocation(&a, &b), DICOMM_ERR_INVALID_ARGUMENT);
	OK(accel->free(p));
	OK(accel->free(q));
}
END_TEST

START_TEST(an_export_names_the_whole_allocation)
{
	struct accel_handle a, b;
	char *p = streams_alloc(BYTES), *q = streams_alloc(BYTES);
	void *base = NULL;

	OK(work->mem_export(p + 12345, &a));
	ck_assert_uint_eq(a.offset, 12345);
	ck_assert_uint_ge(a.bytes, BYTES);
	OK(work->mem_export(p, &b));
	ck_assert_uint_eq(b.offset, 0);
	ck_assert_uint_eq(a.id, b.id);
	ck_assert_mem_eq(a.vendor, b.vendor, sizeof(a.vendor));
	OK(work->mem_export(q, &b));
	ck_assert_uint_ne(a.id, b.id);
	/* Never one's own */
	ck_assert_int_eq(work->mem_import(0, &a, &base), DICOMM_ERR_DEVICE);
	ck_assert_int_eq(work->mem_export(&a, &b), DICOMM_ERR_INVALID_ARGUMENT);
	OK(accel->free(p));
	OK(accel->free(q));
}
END_TEST

/* Is the byte at p + 5003 where a dma-buf of what is before it says? */
static void expect_dmabuf(char *p, uint64_t at)
{
	uint64_t offset = 0;
	int fd = -1;
	char *seen;

	OK(work->dmabuf(p + 5000, 100, &fd, &offset));
	ck_assert_uint_eq(offset, at);
	seen = mmap(NULL, offset + 8192, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(seen, MAP_FAILED);
	ck_assert_int_eq(seen[offset + 3], 77);
	munmap(seen, offset + 8192);
	close(fd);
}

START_TEST(a_dmabuf_is_of_the_same_memory)
{
	char *p = streams_alloc(BYTES);
	uint64_t offset = 0;
	int fd = -1;

	if (!has_dmabuf()) {
		ck_assert_int_eq(work->dmabuf(p, 1, &fd, &offset),
				 DICOMM_ERR_UNSUPPORTED);
		OK(accel->free(p));
		return;
	}
	*(char *)mock.peek(p + 5003) = 77;
	expect_dmabuf(p, 5000);
	setenv("MOCK_BLOCKS", "1", 1);
	if (mock.hsa && !between)
		ck_assert_int_eq(work->dmabuf(p, 1, &fd, &offset),
				 DICOMM_ERR_UNSUPPORTED);
	setenv("MOCK_HSA", "1", 1);
	if (mock.hsa)
		expect_dmabuf(p, (2 << 20) + 5000);
	unsetenv("MOCK_HSA");
	unsetenv("MOCK_BLOCKS");
	ck_assert_int_eq(work->dmabuf(&fd, 1, &fd, &offset),
			 DICOMM_ERR_INVALID_ARGUMENT);
	OK(accel->free(p));
}
END_TEST

/* Those of the allocation itself, though a descriptor is of whole pages and
 * what is before it on the first is another one's */
START_TEST(copies_to_what_a_dmabuf_shows_are_done)
{
	char *p;

	setenv("MOCK_CUT", "1", 1);
	p = streams_alloc(BYTES);
	unsetenv("MOCK_CUT");
	ck_assert_uint_eq((uintptr_t)p % 4096, 512);
	ck_assert(!mock.synced(p));
	*(char *)mock.peek(p + 5003) = 77;
	expect_dmabuf(p, 5512);
	ck_assert(mock.synced(p));
	OK(accel->free(p));
}
END_TEST

/* Half of it, as of a device of two tiles; four times as much, of a pool */
START_TEST(what_a_descriptor_is_not_of_is_not_shown)
{
	static const char *const sizes[] = {"1048576", "8388608"};
	struct accel_handle h;
	char *p = streams_alloc(BYTES);
	uint64_t offset;
	int fd = -1;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		setenv("MOCK_DESCRIPTOR_BYTES", sizes[i], 1);
		ck_assert_int_eq(work->mem_export(p, &h),
				 DICOMM_ERR_UNSUPPORTED);
		ck_assert_int_eq(work->dmabuf(p, 1, &fd, &offset),
				 DICOMM_ERR_UNSUPPORTED);
		unsetenv("MOCK_DESCRIPTOR_BYTES");
	}
	OK(work->mem_export(p, &h));
	OK(accel->free(p));
}
END_TEST

/* The device uses it like its own; others would look where it was. */
START_TEST(managed_memory_is_shown_to_nobody)
{
	struct accel_owner owner = {.index = 7};
	struct accel_allocation a = {.id = 7};
	struct accel_handle h;
	char *p = streams_alloc(BYTES);
	int fd = -1, one = 1, to = 0;
	uint64_t offset;

	mock.manage(p);
	ck_assert(work->owner(p + 5, &owner));
	ck_assert_int_eq(owner.index, 0);
	ck_assert(owner.managed && !owner.apart);
	log_set_last_error("untouched");
	OK(work->allocation(p + 5, &a));
	ck_assert_uint_eq(a.id, 0);
	/* Each call asks. */
	ck_assert_str_eq(log_last_error(), "untouched");
	ck_assert_int_eq(work->mem_export(p, &h), DICOMM_ERR_UNSUPPORTED);
	ck_assert_int_eq(work->dmabuf(p, 1, &fd, &offset),
			 DICOMM_ERR_UNSUPPORTED);
	OK(work->copy(streams.stream, p + 5, &one, sizeof(one)));
	OK(work->copy(streams.stream, &to, p + 5, sizeof(one)));
	streams_drain(streams.stream);
	ck_assert_int_eq(to, 1);
	OK(accel->free(p));
}
END_TEST

START_TEST(what_failed_for_the_user_stays)
{
	struct accel_handle h;
	void *base = NULL, *p = streams_alloc(BYTES);

	OK(work->mem_export(p, &h));
	mock.last_error(7);
	ck_assert_int_eq(work->mem_import(0, &h, &base), DICOMM_ERR_DEVICE);
	ck_assert_int_ne(mock.last_error(0), 0);
	OK(accel->free(p));
}
END_TEST

/* ---- streams ---- */

START_TEST(streams_of_the_user_are_looked_at)
{
	struct accel_stream *s;
	struct accel_event *e;
	void *native = mock.stream(1);
	int one = 1, to = 0;

	if (!old || !tested->silent_when_old) {
		ck_assert_int_eq(work->open(0, native, &s),
				 DICOMM_ERR_INVALID_ARGUMENT);
		ck_assert_ptr_nonnull(
			strstr(log_last_error(), "another device"));
	}
	OK(work->open(1, native, &s));
	OK(work->copy(s, &to, &one, sizeof(int)));
	OK(work->event_create(1, &e));
	OK(streams_finish(s, e));
	ck_assert_int_eq(to, 1);
	if (mock.capture) {
		mock.capture(native);
		ck_assert_int_eq(work->event_record(e, s),
				 DICOMM_ERR_UNSUPPORTED);
		ck_assert_ptr_nonnull(
			strstr(log_last_error(), tested->refuses));
		mock.capture(NULL);
	}
	OK(work->event_record(e, s));
	work->event_destroy(e);
	work->close(s);
	mock.stream_destroy(native);
}
END_TEST

/* Kernels; or, where there are none, the host. */
static dicomm_result_t prepare(struct accel_stream *s, dicomm_datatype_t type)
{
	dicomm_result_t status = work->prepare(s, type);

	if (!host_reduce || status != DICOMM_ERR_UNSUPPORTED)
		return status;
	return work->prepare_host_reduce(s, type);
}

/* A user's graph outlives what the library does meanwhile on other streams. */
START_TEST(a_capture_elsewhere_is_not_spoiled)
{
	struct accel_stream *s;
	struct accel_event *e;
	void *native = mock.stream(0), *p;
	int one = 1, to = 0;

	if (mock.capture && !old) {
		mock.capture(native);
		OK(accel->alloc(0, 100, &p));
		OK(work->open(0, NULL, &s));
		OK(work->event_create(0, &e));
		OK(work->copy(s, &to, &one, sizeof(int)));
		OK(streams_finish(s, e));
		OK(prepare(s, DICOMM_INT32));
		ck_assert_int_eq(to, 1);
		work->event_destroy(e);
		work->close(s);
		OK(accel->free(p));
		mock.capture(NULL);
	}
	mock.stream_destroy(native);
}
END_TEST

/* One that the default stream waits for, with which nothing may happen then */
START_TEST(no_default_stream_is_used_while_it_would_spoil_a_graph)
{
	struct accel_stream *s, *beside;
	struct accel_event *e;
	struct accel_stream_wait *g;
	int one = 1, to = 0;

	OK(work->event_create(0, &e));
	OK(work->stream_wait_create(0, &g));
	mock.capture_blocking(true);
	OK(work->open(0, NULL, &s));
	OK(work->open_beside(s, &beside));
	OK(work->copy(beside, &to, &one, sizeof(int)));
	OK(streams_finish(beside, e));
	ck_assert_int_eq(to, 1);
	ck_assert_int_eq(work->event_record(e, s), DICOMM_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(log_last_error(), "default stream"));
	ck_assert_int_eq(work->copy(s, &to, &one, sizeof(int)),
			 DICOMM_ERR_UNSUPPORTED);
	ck_assert_int_eq(work->stream_wait_queue(g, s), DICOMM_ERR_UNSUPPORTED);
	mock.capture_blocking(false);
	OK(work->event_record(e, s));
	work->close(beside);
	work->close(s);
	work->stream_wait_destroy(g);
	work->event_destroy(e);
}
END_TEST

/* Where each happens only once: no more of them than are under way */
START_TEST(events_are_used_again)
{
	for (int i = 0; mock.events && i < 300; i++) {
		OK(work->event_record(streams.event, streams.stream));
		OK(work->wait_event(streams.other, streams.event));
		OK(work->stream_wait_queue(streams.stream_wait, streams.other));
		work->stream_wait_release(streams.stream_wait);
		if (i % 30 == 29) {
			streams_drain(streams.stream);
			streams_drain(streams.other);
		}
	}
	if (mock.events)
		ck_assert_int_le(mock.events(), 300);
}
END_TEST

static void await_event(const struct accel_event *e)
{
	dicomm_result_t status;

	while ((status = work->event_query(e)) == DICOMM_AGAIN)
		usleep(200);
	OK(status);
}

/* Where the driver has that. A look at an event that was reached is no call. */
START_TEST(events_are_words_where_streams_write_them)
{
	int before = mock.writes();
	unsigned long calls;

	OK(work->event_record(streams.event, streams.other));
	ck_assert_int_eq(mock.writes() - before, writes());
	await_event(streams.event);
	calls = mock.calls();
	for (int i = 0; i < 1000; i++)
		OK(work->event_query(streams.event));
	if (writes())
		ck_assert_uint_eq(mock.calls(), calls);
}
END_TEST

/* Once in a millisecond, by five calls: to enter the device, leave it and look,
 * and two to have something to look at */
START_TEST(of_a_silent_word_the_driver_is_asked_seldom)
{
	uint64_t looks = 0, from, ns;
	unsigned long calls;

	OK(work->stream_wait_queue(streams.stream_wait, streams.other));
	OK(work->event_record(streams.event, streams.other));
	calls = mock.calls();
	from = clock_ns();
	while ((ns = clock_ns() - from) < 20000000) {
		ck_assert_int_eq(work->event_query(streams.event),
				 DICOMM_AGAIN);
		looks++;
	}
	calls = mock.calls() - calls;
	if (writes())
		ck_assert_uint_le(calls, 5 * (ns / 1000000 + 1));
	printf("%s: %lu calls for %d looks in %d us\n", accel->name, calls,
	       (int)looks, (int)(ns / 1000));
	work->stream_wait_release(streams.stream_wait);
	await_event(streams.event);
}
END_TEST

/* The earlier one comes when the later one has been reached, and changes
 * nothing. */
START_TEST(an_event_forgets_its_place_on_another_stream)
{
	struct accel_stream *third;
	int one = 1, to = 0;

	OK(work->open_beside(streams.stream, &third));
	for (int i = 0; i < 3; i++) {
		to = 0;
		OK(work->stream_wait_queue(streams.stream_wait, streams.other));
		OK(work->event_record(streams.event, streams.other));
		OK(work->copy(third, &to, &one, sizeof(int)));
		OK(work->event_record(streams.event, third));
		await_event(streams.event);
		ck_assert_int_eq(to, 1);
		work->stream_wait_release(streams.stream_wait);
		streams_drain(streams.other);
		OK(work->event_query(streams.event));
		OK(work->wait_event(third, streams.event));
		streams_drain(third);
	}
	work->close(third);
}
END_TEST

/* What its stream has still to write is not taken for what others wait for. */
START_TEST(an_event_may_go_while_its_stream_is_held)
{
	struct accel_stream *third;
	struct accel_event *e;
	int before;

	OK(work->open_beside(streams.stream, &third));
	for (int i = 0; i < 3; i++) {
		OK(work->stream_wait_queue(streams.stream_wait, streams.other));
		OK(work->event_create(0, &e));
		OK(work->event_record(e, streams.other));
		work->event_destroy(e);
		OK(work->event_create(0, &e));
		before = mock.writes();
		OK(work->event_record(e, third));
		ck_assert_int_eq(mock.writes() - before, writes());
		await_event(e);
		work->stream_wait_release(streams.stream_wait);
		streams_drain(streams.other);
		OK(work->event_query(e));
		OK(work->wait_event(streams.other, e));
		streams_drain(streams.other);
		work->event_destroy(e);
	}
	work->close(third);
}
END_TEST

/* Also where numbers of 32 bits wrap, as those of words soon do */
START_TEST(streams_follow_each_other_many_times)
{
	int now = 0, to = 0;

	for (int i = 1; i <= 20; i++) {
		OK(work->stream_wait_queue(streams.stream_wait, streams.other));
		OK(work->copy(streams.other, &now, &i, sizeof(int)));
		OK(work->event_record(streams.event, streams.other));
		OK(work->wait_event(streams.stream, streams.event));
		OK(work->copy(streams.stream, &to, &now, sizeof(int)));
		ck_assert_int_eq(work->event_query(streams.event),
				 DICOMM_AGAIN);
		work->stream_wait_release(streams.stream_wait);
		streams_drain(streams.stream);
		ck_assert_int_eq(to, i);
		OK(work->event_query(streams.event));
	}
}
END_TEST

/* What was queued does not go on then. */
START_TEST(a_device_that_fails_is_noticed_by_who_looks)
{
	uint64_t until = clock_ms() + 5000;
	struct accel_stream *s, *held;
	struct accel_event *e;
	struct accel_stream_wait *g;
	dicomm_result_t status;

	OK(work->open(1, NULL, &s));
	OK(work->open_beside(s, &held));
	OK(work->event_create(1, &e));
	OK(work->stream_wait_create(1, &g));
	OK(work->stream_wait_queue(g, held));
	OK(work->event_record(e, held));
	ck_assert_int_eq(work->event_query(e), DICOMM_AGAIN);
	mock.fail_device(1, DRIVER_ILLEGAL_ADDRESS);
	while ((status = work->event_query(e)) == DICOMM_AGAIN &&
	       clock_ms() < until)
		usleep(100);
	ck_assert_int_eq(status, DICOMM_ERR_DEVICE);
	/* The next one to look hears of it as well. */
	ck_assert_int_eq(work->event_query(e), DICOMM_ERR_DEVICE);
	work->stream_wait_destroy(g);
	work->event_destroy(e);
	work->close(held);
	work->close(s);
	mock.fail_device(1, DRIVER_SUCCESS);
}
END_TEST

/* ---- kernels ---- */

#define COUNT 1003

static void check_type(dicomm_datatype_t type, char *p, char *q, char *r)
{
	size_t bytes = COUNT * element_bytes(type);
	unsigned char *a = malloc(bytes), *b = malloc(bytes);
	unsigned char *got = malloc(bytes), *wanted = malloc(bytes);

	for (size_t i = 0; i < bytes; i++) {
		a[i] = (unsigned char)(i * 31);
		b[i] = (unsigned char)(i * 57 + 3);
	}
	OK(prepare(streams.stream, type));
	OK(work->copy(streams.stream, p, a, bytes));
	OK(work->copy(streams.stream, q, b, bytes));
	for (int o = 0; o < element_nops; o++) {
		dicomm_redop_t op = element_ops[o];
		const void *src[3] = {p, q, p};
		const void *host[3] = {a, b, a};

		if (!element_op_fits(op, type))
			continue;
		reduce_kernel(type, op, false)(wanted, a, b, COUNT);
		OK(work->reduce(streams.stream, type, op, r, p, q, COUNT));
		OK(work->copy(streams.stream, got, r, bytes));
		streams_drain(streams.stream);
		ck_assert_mem_eq(got, wanted, bytes);
		reduce_fold(type, op, wanted, host, 3, COUNT);
		OK(work->fold(streams.stream, type, op, r, src, 3, COUNT));
		OK(work->copy(streams.stream, got, r, bytes));
		streams_drain(streams.stream);
		ck_assert_mem_eq(got, wanted, bytes);
	}
	reduce_scale_kernel(type)(wanted, a, b, COUNT);
	OK(work->scale(streams.stream, type, r, p, q, 0, COUNT));
	OK(work->copy(streams.stream, got, r, bytes));
	streams_drain(streams.stream);
	ck_assert_mem_eq(got, wanted, bytes);
	free(a);
	free(b);
	free(got);
	free(wanted);
}

START_TEST(kernels_run_on_memory_of_the_device)
{
	char *p, *q, *r;

	if (!kernels)
		return;
	p = streams_alloc(COUNT * 8);
	q = streams_alloc(COUNT * 8);
	r = streams_alloc(COUNT * 8);
	for (int i = 0; i < element_ntypes; i++)
		check_type(element_types[i], p, q, r);
	OK(accel->free(p));
	OK(accel->free(q));
	OK(accel->free(r));
}
END_TEST

START_TEST(a_device_reads_and_writes_mapped_host_memory)
{
	int32_t *host = aligned_alloc(4096, 4096), *p;
	void *device;

	if (!kernels) {
		free(host);
		return;
	}
	p = streams_alloc(4096);
	OK(prepare(streams.stream, DICOMM_INT32));
	OK(work->map_host(0, host, 4096, false, &device));
	for (int i = 0; i < 1024; i++) {
		host[i] = i;
		((int32_t *)mock.peek(p))[i] = 1000;
	}
	OK(work->reduce(streams.stream, DICOMM_INT32, DICOMM_SUM, device,
			device, p, 1024));
	OK(work->divide(streams.stream, DICOMM_INT32, device, device, 2, 1024));
	streams_drain(streams.stream);
	for (int i = 0; i < 1024; i++)
		ck_assert_int_eq(host[i], (i + 1000) / 2);
	work->unmap_host(0, host);
	OK(accel->free(p));
	free(host);
}
END_TEST

START_TEST(without_kernels_it_says_so)
{
	for (int i = 0; i < 2; i++) {
		log_set_last_error("");
		ck_assert_int_eq(work->prepare(streams.stream, DICOMM_FLOAT32),
				 DICOMM_ERR_UNSUPPORTED);
		ck_assert_ptr_nonnull(
			strstr(log_last_error(), "this build has none for"));
		/* Its stream waits are host functions as well. */
		ck_assert_int_eq(work->prepare_host_reduce(streams.stream,
							   DICOMM_FLOAT32),
				 DICOMM_ERR_UNSUPPORTED);
		ck_assert_ptr_nonnull(strstr(log_last_error(), "too old"));
	}
}
END_TEST

/* More than its memory holds at once, of operands that the result replaces; by
 * a stream that goes before its work is done, and the next one. */
START_TEST(the_host_reduces_piece_by_piece)
{
	const size_t n = 3000001;
	int32_t *p = streams_alloc(n * 4), *q = streams_alloc(n * 4);
	struct accel_stream *s[2];
	struct accel_event *e;
	const void *src[3] = {q, p, q};
	int32_t *seen_p = mock.peek(p), *seen_q = mock.peek(q);

	ck_assert_int_eq(work->prepare(streams.stream, DICOMM_INT32),
			 DICOMM_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(log_last_error(), "cannot compile"));
	for (size_t i = 0; i < n; i++) {
		seen_p[i] = (int32_t)i;
		seen_q[i] = 5;
	}
	OK(work->event_create(0, &e));
	for (int i = 0; i < 2; i++) {
		OK(work->open_beside(streams.stream, &s[i]));
		OK(prepare(s[i], DICOMM_INT32));
		if (i)
			OK(work->wait_event(s[i], e));
		OK(work->reduce(s[i], DICOMM_INT32, DICOMM_SUM, p, p, q, n));
		OK(work->fold(s[i], DICOMM_INT32, DICOMM_SUM, p, src, 3, n));
		OK(work->divide(s[i], DICOMM_INT32, p, p, 3, n));
		OK(work->scale(s[i], DICOMM_INT32, p, p, NULL, 3, n));
		OK(work->event_record(e, s[i]));
		work->close(s[i]);
	}
	OK(work->wait_event(streams.stream, e));
	streams_drain(streams.stream);
	for (size_t i = 0; i < n; i++) {
		int32_t wanted = (int32_t)i;

		for (int k = 0; k < 2; k++)
			wanted = (wanted + 15) / 3 * 3;
		ck_assert_int_eq(seen_p[i], wanted);
	}
	work->event_destroy(e);
	OK(accel->free(p));
	OK(accel->free(q));
}
END_TEST

/* A stream wait that only the host releases must not keep a call from
 * returning.
 */
START_TEST(nothing_that_is_queued_waits_for_a_held_stream)
{
	const void *src[2];
	void *p = streams_alloc(4096), *refused = NULL;
	uint64_t offset;
	int fd = -1;

	src[0] = src[1] = p;
	if (kernels)
		OK(prepare(streams.stream, DICOMM_BFLOAT16));
	OK(work->stream_wait_queue(streams.stream_wait, streams.stream));
	if (kernels) {
		OK(work->reduce(streams.stream, DICOMM_BFLOAT16, DICOMM_SUM, p,
				p, p, 100));
		OK(work->fold(streams.stream, DICOMM_BFLOAT16, DICOMM_MAX, p,
			      src, 2, 100));
		OK(work->scale(streams.stream, DICOMM_BFLOAT16, p, p, NULL, 1,
			       100));
	}
	OK(work->copy(streams.stream, p, p, 4096));
	OK(work->event_record(streams.event, streams.stream));
	OK(work->wait_event(streams.other, streams.event));
	OK(work->stream_wait_queue(streams.stream_wait, streams.other));
	ck_assert_int_eq(work->event_query(streams.event), DICOMM_AGAIN);
	if (!old) {
		if (has_dmabuf()) {
			OK(work->dmabuf(p, 4096, &fd, &offset));
			close(fd);
		}
		/* The mock would see it. */
		ck_assert_int_eq(mock.hangs(), 0);
		ck_assert_int_eq(accel->alloc(0, 1, &refused),
				 DICOMM_ERR_DEVICE);
		ck_assert_int_eq(mock.hangs(), 1);
	}
	work->stream_wait_release(streams.stream_wait);
	work->stream_wait_release(streams.stream_wait);
	streams_drain(streams.other);
	OK(accel->free(p));
}
END_TEST

/* ---- faults ---- */

/* Some of everything; what was made is taken back however it ends. */
static dicomm_result_t tour(void)
{
	struct accel_stream *a = NULL, *b = NULL;
	struct accel_event *e = NULL;
	struct accel_stream_wait *g = NULL;
	struct accel_handle h;
	void *p = NULL, *mapped = NULL;
	static _Alignas(4096) char host[4096];
	dicomm_result_t status;
	uint64_t offset;
	int fd = -1;

	if ((status = work->open(1, NULL, &a)) ||
	    (status = work->open_beside(a, &b)) ||
	    (status = work->event_create(1, &e)) ||
	    (status = work->stream_wait_create(1, &g)) ||
	    (status = accel->alloc(1, 4096, &p)) ||
	    (status = work->map_host(1, host, sizeof(host), false, &mapped)) ||
	    (kernels && (status = prepare(a, DICOMM_INT64))) ||
	    (status = work->stream_wait_queue(g, a)))
		goto out;
	status = work->copy(a, p, host, 4096);
	if (status == DICOMM_SUCCESS && kernels)
		status = work->reduce(a, DICOMM_INT64, DICOMM_SUM, p, p, mapped,
				      512);
	work->stream_wait_release(g);
	if (status || (status = work->event_record(e, a)) ||
	    (status = work->wait_event(b, e)) ||
	    (status = streams_finish(b, e)) ||
	    (status = work->mem_export(p, &h)))
		goto out;
	if (work->caps(1) & ACCEL_DMABUF &&
	    !(status = work->dmabuf(p, 1, &fd, &offset)))
		close(fd);
out:
	/* What was queued uses what goes now. */
	if (e)
		(void)streams_finish(a, e);
	if (mapped)
		work->unmap_host(1, host);
	if (p)
		accel->free(p);
	work->stream_wait_destroy(g);
	work->event_destroy(e);
	work->close(b);
	work->close(a);
	return status;
}

START_TEST(a_call_that_fails_leaves_nothing_behind)
{
	int n = 1, live = mock.live(), refused = 0;

	/* Whether a device waits for memory, without which the host does not
	 * reduce for it, is found out once: not while that is made to fail. */
	if (host_reduce)
		OK(tour());
	for (;; n++) {
		dicomm_result_t status;

		mock.inject(n, DRIVER_OUT_OF_MEMORY);
		status = tour();
		if (mock.pending())
			break;
		/* Whether a failure matters is not for the mock to say: a
		 * wait for memory that is refused is done in another way. */
		refused += status != DICOMM_SUCCESS;
		ck_assert_int_ne(status, DICOMM_AGAIN);
	}
	mock.inject(0, 0);
	OK(tour());
	printf("%s: each of %d calls failed once, %d of them for good\n",
	       accel->name, n - 1, refused);
	ck_assert_int_gt(refused, 10);
	/* What cannot be freed for want of a context stays. */
	ck_assert_int_le(mock.live() - live, refused);
}
END_TEST

/* The last, since a device whose kernel failed is of no more use */
START_TEST(a_kernel_that_fails_is_noticed)
{
	struct accel_stream *s;
	struct accel_event *e;
	int32_t x = 1;
	dicomm_result_t status;

	/* Copies of the host's own operands are no failure. */
	if (!kernels || host_reduce)
		return;
	OK(work->open(1, NULL, &s));
	OK(work->event_create(1, &e));
	OK(work->prepare(s, DICOMM_INT32));
	/* Memory of the host that no device reaches */
	OK(work->reduce(s, DICOMM_INT32, DICOMM_SUM, &x, &x, &x, 1));
	/* It may have failed before the next call. */
	status = work->event_record(e, s);
	if (status == DICOMM_SUCCESS)
		while ((status = work->event_query(e)) == DICOMM_AGAIN)
			sched_yield();
	ck_assert_int_eq(status, DICOMM_ERR_DEVICE);
	work->event_destroy(e);
	work->close(s);
}
END_TEST

/* ---- two processes ---- */

/* One exports, the other reads and writes at an offset. */
static int export_side(int fd)
{
	struct accel_handle h;
	unsigned char *p = NULL;
	char done = 0;

	if (accel->alloc(0, BYTES, (void **)&p))
		return 1;
	*(unsigned char *)mock.peek(p + 1000) = 42;
	if (work->mem_export(p + 1000, &h) ||
	    write(fd, &h, sizeof(h)) != sizeof(h) || read(fd, &done, 1) != 1)
		return 2;
	if (*(unsigned char *)mock.peek(p + 1001) != 43)
		return 3;
	return accel->free(p) ? 4 : 0;
}

static int import_side(int fd)
{
	struct accel_stream *s = NULL;
	struct accel_event *e = NULL;
	struct accel_handle h;
	unsigned char got = 0, put = 43;
	void *base = NULL;
	char *at;

	if (read(fd, &h, sizeof(h)) != sizeof(h) ||
	    work->mem_import(1, &h, &base) || work->open(1, NULL, &s) ||
	    work->event_create(1, &e))
		return 5;
	at = (char *)base + h.offset;
	if (work->copy(s, &got, at, 1) || work->copy(s, at + 1, &put, 1) ||
	    streams_finish(s, e) || got != 42)
		return 6;
	work->mem_unimport(1, base);
	work->event_destroy(e);
	work->close(s);
	if (mock.live())
		return 7;
	return write(fd, &put, 1) == 1 ? 0 : 8;
}

static int in_child(int (*fn)(int), int fd)
{
	pid_t child = fork();

	if (child == 0) {
		alarm(100);
		_exit(fn(fd));
	}
	return child;
}

static int status_of_child(int child)
{
	int status = -1;

	if (child < 0 || waitpid(child, &status, 0) != child)
		return -1;
	return status;
}

static int pair_status[2];

START_TEST(another_process_maps_an_export)
{
	ck_assert_int_eq(pair_status[0], 0);
	ck_assert_int_eq(pair_status[1], 0);
}
END_TEST

/* Before the driver is started: it does not live on in the child of a fork. */
static void try_pair(void)
{
	int fds[2], a, b;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds)) {
		pair_status[0] = -1;
		return;
	}
	a = in_child(export_side, fds[0]);
	b = in_child(import_side, fds[1]);
	close(fds[0]);
	close(fds[1]);
	pair_status[0] = status_of_child(a);
	pair_status[1] = status_of_child(b);
}

static int refused_start(int fd)
{
	char why[256] = "";

	(void)fd;
	mock.inject(1, DRIVER_NO_DEVICE);
	if (accel->count(why, sizeof(why)))
		return 1;
	return (strstr(why, "does not start") ||
		strstr(why, "has no device")) &&
			       strstr(why, "100")
		       ? 0
		       : 1;
}

static void look_for_queues(int level, const char *message, void *ctx)
{
	if (level == LOG_WARN && strstr(message, "too few queues"))
		*(bool *)ctx = true;
}

/* The driver would run what is ours when a stream that waits for it has got
 * on. Of old ones nobody sees that: an event of an idle stream is no work. */
static int started_on_one_queue(int fd)
{
	bool warned = false;
	void *p = NULL;

	(void)fd;
	setenv("MOCK_ONE_QUEUE", "1", 1);
	log_set_sink(look_for_queues, &warned);
	return accel->alloc(0, 64, &p) || accel->free(p) || warned == old;
}

static void look_for_events(int level, const char *message, void *ctx)
{
	if (level == LOG_INFO && strstr(message, "the host sees streams by"))
		*(bool *)ctx = strstr(message, "by events");
}

/* Nor are words used that streams would not write. */
static int started_without_writes(const char *how)
{
	struct accel_stream *a = NULL, *b = NULL;
	struct accel_event *e = NULL;
	bool events = false;
	int before;

	if (how)
		setenv("MOCK_WRITES", how, 1);
	setenv("DICOMM_DEBUG", "info", 1);
	log_set_sink(look_for_events, &events);
	if (work->open(0, NULL, &a) || work->open_beside(a, &b) ||
	    work->event_create(0, &e))
		return 1;
	before = mock.writes();
	if (events != (how || !writes()) || streams_finish(b, e) ||
	    (mock.writes() == before) != events)
		return 2;
	work->event_destroy(e);
	work->close(b);
	work->close(a);
	return mock.live() != 0;
}

static int started_as_it_is(int fd)
{
	(void)fd;
	return started_without_writes(NULL);
}

static int started_with_writes_refused(int fd)
{
	(void)fd;
	return started_without_writes("refused");
}

static int started_with_writes_lost(int fd)
{
	(void)fd;
	return started_without_writes("lost");
}

static int rung_status[3];

START_TEST(which_way_the_host_sees_streams_is_found_out)
{
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(rung_status[i], 0);
}
END_TEST

static int start_status, queue_status;

START_TEST(streams_of_one_queue_are_warned_of)
{
	ck_assert_int_eq(queue_status, 0);
}
END_TEST

START_TEST(a_driver_that_does_not_start_says_why)
{
	ck_assert_int_eq(start_status, 0);
}
END_TEST

static TCase *driver_tests(void)
{
	TCase *t = tcase_create("driver");

	try_pair();
	start_status = status_of_child(in_child(refused_start, -1));
	if (!mock.events)
		queue_status =
			status_of_child(in_child(started_on_one_queue, -1));
	rung_status[0] = status_of_child(in_child(started_as_it_is, -1));
	rung_status[1] =
		status_of_child(in_child(started_with_writes_refused, -1));
	if (writes())
		rung_status[2] =
			status_of_child(in_child(started_with_writes_lost, -1));
	tcase_set_timeout(t, 100);
	tcase_add_checked_fixture(t, streams_setup, teardown);
	tcase_add_test(t, devices_are_described);
	tcase_add_test(t, memory_knows_its_device);
	tcase_add_test(t, what_cannot_be_allocated_is_refused);
	tcase_add_test(t, a_host_that_touches_memory_dies);
	tcase_add_test(t, host_memory_is_mapped_once_for_all);
	tcase_add_test(t, host_memory_that_is_loaded_only_is_mapped);
	tcase_add_test(t, an_export_names_the_whole_allocation);
	tcase_add_test(t, each_allocation_has_a_number_of_its_own);
	tcase_add_test(t, a_dmabuf_is_of_the_same_memory);
	if (tested->syncs && has_dmabuf())
		tcase_add_test(t, copies_to_what_a_dmabuf_shows_are_done);
	if (mock.events)
		tcase_add_test(t, what_a_descriptor_is_not_of_is_not_shown);
	tcase_add_test(t, managed_memory_is_shown_to_nobody);
	/* Before ROCm 7, every call forgets it. */
	if (mock.last_error && !old && !between)
		tcase_add_test(t, what_failed_for_the_user_stays);
	tcase_add_test(t, another_process_maps_an_export);
	tcase_add_test(t, a_driver_that_does_not_start_says_why);
	/* Of Level Zero test_ze_queues tries that. */
	if (!mock.events)
		tcase_add_test(t, streams_of_one_queue_are_warned_of);
	streams_add_tests(t);
	tcase_add_test(t, streams_of_the_user_are_looked_at);
	tcase_add_test(t, a_capture_elsewhere_is_not_spoiled);
	/* Level Zero captures nothing. */
	if (!mock.events)
		tcase_add_test(
			t,
			no_default_stream_is_used_while_it_would_spoil_a_graph);
	tcase_add_test(t, events_are_used_again);
	tcase_add_test(t, which_way_the_host_sees_streams_is_found_out);
	tcase_add_test(t, events_are_words_where_streams_write_them);
	tcase_add_test(t, of_a_silent_word_the_driver_is_asked_seldom);
	tcase_add_test(t, an_event_forgets_its_place_on_another_stream);
	tcase_add_test(t, an_event_may_go_while_its_stream_is_held);
	tcase_add_test(t, streams_follow_each_other_many_times);
	return t;
}

static TCase *kernel_tests(void)
{
	TCase *t = tcase_create("kernels");

	tcase_set_timeout(t, 100);
	tcase_add_checked_fixture(t, streams_setup, teardown);
	tcase_add_test(t, kernels_run_on_memory_of_the_device);
	tcase_add_test(t, a_device_reads_and_writes_mapped_host_memory);
	if (!kernels)
		tcase_add_test(t, without_kernels_it_says_so);
	if (host_reduce)
		tcase_add_test(t, the_host_reduces_piece_by_piece);
	return t;
}

static int run_suite(enum mode mode)
{
	Suite *s = suite_create(mode_names[mode]);
	TCase *t;

	if (mode <= MODE_OLD)
		suite_add_tcase(s, driver_tests());
	mock.delay(300);
	suite_add_tcase(s, kernel_tests());
	t = tcase_create("faults");
	tcase_set_timeout(t, 100);
	tcase_add_test(t, a_call_that_fails_leaves_nothing_behind);
	suite_add_tcase(s, t);
	t = tcase_create("last");
	tcase_add_unchecked_fixture(t, streams_setup, NULL);
	tcase_add_test(t, nothing_that_is_queued_waits_for_a_held_stream);
	tcase_add_test(t, a_device_that_fails_is_noticed_by_who_looks);
	tcase_add_test(t, a_kernel_that_fails_is_noticed);
	suite_add_tcase(s, t);
	return runner_main_here(s);
}

static int run_mode(const struct backend *b, enum mode mode)
{
	tested = b;
	old = mode == MODE_OLD;
	between = mode == MODE_BETWEEN;
	compiled = mode == MODE_COMPILED;
	host_reduce =
		mode == MODE_HOST_REDUCE || (!b->images && b->always_waits);
	kernels = b->images || !old || host_reduce; /* or what does as well */
	if (mode >= MODE_COMPILED)
		setenv("MOCK_IMAGES", "refused", 1);
	if (host_reduce)
		setenv("MOCK_COMPILER", "broken", 1);
	if (!kernels)
		printf("no kernels in this build: without those\n");
	return load_mocks(b) ? run_suite(mode) : EXIT_FAILURE;
}

int backend_main(const struct backend *b)
{
	int failed = 0;

	accel = b->accel;
	work = accel->work;
	streams_use(accel);
	leaks_ignore(); /* the mocks count what devices hold */
	/* What one mode compiles is none of the next one's. */
	setenv("DICOMM_CACHE_DIR", "", 1);
	for (int m = 0; m < MODES; m++) {
		pid_t child;

		if ((m == MODE_COMPILED && !b->compiler) ||
		    (m == MODE_BETWEEN && !b->between_mock))
			continue;
		fflush(NULL);
		child = fork();
		if (child == 0)
			exit(run_mode(b, (enum mode)m));
		failed |= status_of_child(child) != 0;
	}
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
