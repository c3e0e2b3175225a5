/* SPDX-License-Identifier: BSD-3-Clause */
/* Each operation of the OpenCL backend, on whatever device there is (PoCL makes
 * the processor one). */
#include <check.h>
#include <dirent.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dlfcn.h>

#include "src/accel/accel.h"
#include "src/accel/host/memory.h"
#include "src/accel/launch/binary_cache.h"
#include "src/accel/opencl/api.h"
#include "src/base/log.h"
#include "tests/support/runner.h"
#include "tests/support/streams.h"

extern const struct accel accel_opencl;

static const struct accel_work *work;

#define OK STREAMS_OK

START_TEST(devices_are_described)
{
	dicomm_device_info_t info;
	char why[128] = "untouched";
	int n = accel_opencl.count(why, sizeof(why));

	ck_assert_int_gt(n, 0);
	ck_assert_str_eq(why, "untouched");
	for (int i = 0; i < n; i++) {
		char name[32];

		snprintf(name, sizeof(name), "opencl:%d", i);
		OK(accel_opencl.describe(i, &info));
		ck_assert_str_eq(info.name, name);
		ck_assert_str_ne(info.description, "");
		/* What it is called, and its version, however long both are. */
		ck_assert_ptr_nonnull(strstr(info.description, ", OpenCL "));
	}
	ck_assert_int_eq(accel_opencl.describe(n, &info),
			 DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_int_eq(accel_opencl.describe(-1, &info),
			 DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_uint_eq(work->caps(0), ACCEL_SHARES_HOST | ACCEL_MAP_HOST);
}
END_TEST

START_TEST(memory_is_the_hosts)
{
	struct accel_export where;
	struct accel_owner owner;
	void *p, *device;
	size_t offset;

	OK(accel_opencl.alloc(0, 100000, &p));
	ck_assert(host_memory_find((char *)p + 5, 7, &where, &offset));
	ck_assert_uint_eq(offset, 5);
	ck_assert_int_eq(where.pid, getpid());
	ck_assert(!work->owner(p, &owner));
	OK(work->map_host(0, p, 100000, false, &device));
	ck_assert_ptr_eq(device, p);
	work->unmap_host(0, p);
	OK(accel_opencl.free(p));
	ck_assert_int_eq(accel_opencl.free(&where),
			 DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_int_eq(accel_opencl.alloc(99, 1, &p),
			 DICOMM_ERR_INVALID_ARGUMENT);
}
END_TEST

START_TEST(what_it_lacks_is_refused)
{
	struct accel_handle h = {0};
	uint64_t offset;
	void *base;
	int fd;

	ck_assert_int_eq(work->mem_export(&h, &h), DICOMM_ERR_UNSUPPORTED);
	ck_assert_int_eq(work->mem_import(0, &h, &base),
			 DICOMM_ERR_UNSUPPORTED);
	ck_assert_int_eq(work->dmabuf(&h, 1, &fd, &offset),
			 DICOMM_ERR_UNSUPPORTED);
}
END_TEST

START_TEST(kernels_run_in_the_order_of_the_stream)
{
	float a[1000], b[1000], sum[1000];
	const void *src[3] = {a, b, sum};
	int32_t whole[4] = {7, -7, 8, -9};

	for (int i = 0; i < 1000; i++) {
		a[i] = (float)i;
		b[i] = 1;
		sum[i] = 0;
	}
	OK(work->prepare(streams.stream, DICOMM_FLOAT32));
	OK(work->prepare(streams.stream, DICOMM_INT32));
	OK(work->stream_wait_queue(streams.stream_wait, streams.stream));
	OK(work->reduce(streams.stream, DICOMM_FLOAT32, DICOMM_SUM, sum, a, b,
			1000));
	OK(work->fold(streams.stream, DICOMM_FLOAT32, DICOMM_SUM, sum, src, 3,
		      1000));
	OK(work->scale(streams.stream, DICOMM_FLOAT32, sum, sum, &b[0], 0,
		       1000));
	OK(work->divide(streams.stream, DICOMM_INT32, whole, whole, 2, 4));
	OK(work->reduce(streams.stream, DICOMM_FLOAT32, DICOMM_SUM, sum, a, b,
			0));
	streams_pause_ms(20);
	ck_assert(sum[1] == 0);
	work->stream_wait_release(streams.stream_wait);
	streams_drain(streams.stream);
	for (int i = 0; i < 1000; i++)
		ck_assert(sum[i] == (float)(2 * i + 2));
	ck_assert(whole[0] == 3 && whole[1] == -3 && whole[2] == 4 &&
		  whole[3] == -4);
}
END_TEST

/* ---- queues of the user ---- */

static struct opencl_api cl;

static opencl_device device;

static opencl_queue user_queue(uint64_t bits)
{
	const uint64_t properties[] = {OPENCL_QUEUE_PROPERTIES, bits, 0};
	opencl_platform platform;
	opencl_context context;
	opencl_queue queue;
	int32_t error;
	void *lib = dlopen("libOpenCL.so.1", RTLD_NOW);

	ck_assert_ptr_nonnull(lib);
#define F(name, result, parameters) *(void **)&cl.name = dlsym(lib, #name);
	OPENCL_FUNCTIONS(F)
#undef F
	ck_assert_int_eq(cl.clGetPlatformIDs(1, &platform, NULL), 0);
	ck_assert_int_eq(cl.clGetDeviceIDs(platform, OPENCL_DEVICE_TYPE_ALL, 1,
					   &device, NULL),
			 0);
	context = cl.clCreateContext(NULL, 1, &device, NULL, NULL, &error);
	ck_assert_ptr_nonnull(context);
	queue = cl.clCreateCommandQueueWithProperties(context, device,
						      properties, &error);
	ck_assert_ptr_nonnull(queue);
	cl.clReleaseContext(context);
	return queue;
}

START_TEST(a_queue_of_the_user_is_a_stream)
{
	opencl_queue queue = user_queue(0);
	struct accel_stream *s;
	double a[3] = {1, 2, 3}, b[3] = {10, 20, 30}, sum[3];

	OK(work->open(0, queue, &s));
	cl.clReleaseCommandQueue(queue);
	OK(work->prepare(s, DICOMM_FLOAT64));
	OK(work->stream_wait_queue(streams.stream_wait, s));
	OK(work->reduce(s, DICOMM_FLOAT64, DICOMM_SUM, sum, a, b, 3));
	work->stream_wait_release(streams.stream_wait);
	streams_drain(s);
	ck_assert(sum[0] == 11 && sum[1] == 22 && sum[2] == 33);
	work->close(s);
}
END_TEST

START_TEST(an_unordered_queue_is_refused)
{
	opencl_queue queue = user_queue(OPENCL_QUEUE_OUT_OF_ORDER);
	struct accel_stream *s;

	ck_assert_int_eq(work->open(0, queue, &s), DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(log_last_error(), "out of order"));
	cl.clReleaseCommandQueue(queue);
}
END_TEST

/* ---- where there is none ---- */

/* A process whose loader finds no vendor */
static int without_platforms(void)
{
	char why[256] = "";
	pid_t child = fork();
	int status;

	if (child == 0) {
		setenv("OCL_ICD_VENDORS", "/nonexistent", 1);
		setenv("OPENCL_VENDOR_PATH", "/nonexistent", 1);
		_exit(accel_opencl.count(why, sizeof(why)) == 0 &&
				      strncmp(why, "OpenCL has no", 13) == 0
			      ? 0
			      : 1);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 1;
	return status;
}

static int no_platform_status;

START_TEST(without_a_platform_there_are_no_devices)
{
	ck_assert_int_eq(no_platform_status, 0);
}
END_TEST

/* ---- kernels that are kept ---- */

#define THREADS 3
#define ELEMENTS 1000

static char kept[] = "/tmp/dicomm.opencl.XXXXXX";

static atomic_int built, taken;

static void count(int level, const char *message, void *ctx)
{
	(void)level;
	(void)ctx;
	built += strstr(message, "built kernel") != NULL;
	taken += strstr(message, "read kernel") != NULL;
}

/* A stream of its own, in the context that all share */
static void *sum_once(void *wrong)
{
	float a[ELEMENTS], b[ELEMENTS], sum[ELEMENTS] = {0};
	struct accel_stream *s;
	struct accel_event *e;

	log_set_sink(count, NULL);
	for (int i = 0; i < ELEMENTS; i++) {
		a[i] = (float)i;
		b[i] = 0.5f;
	}
	if (work->open(0, NULL, &s) || work->event_create(0, &e) ||
	    work->reduce(s, DICOMM_FLOAT32, DICOMM_SUM, sum, a, b, ELEMENTS) ||
	    streams_finish(s, e))
		return wrong;
	for (int i = 0; i < ELEMENTS; i++)
		if (sum[i] != (float)i + 0.5f)
			return wrong;
	work->event_destroy(e);
	work->close(s);
	return NULL;
}

static bool sum_in_threads(void)
{
	pthread_t threads[THREADS];
	bool right = true;
	char wrong;
	void *got;

	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, sum_once, &wrong))
			return false;
	for (int i = 0; i < THREADS; i++)
		right &= !pthread_join(threads[i], &got) && !got;
	return right;
}

/* A process whose streams all need one kernel at once. Returns 10 for each time
 * that it was built and 1 for each that it was read from the folder; 99 if
 * sums are wrong. */
static int process_of(const char *folder)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		alarm(120);
		setenv("POCL_KERNEL_CACHE", "0", 1);
		setenv("DICOMM_CACHE_DIR", folder, 1);
		setenv("DICOMM_DEBUG", "debug", 1);
		setenv("DICOMM_DEBUG_FILE", "/dev/null", 1);
		streams_use(&accel_opencl);
		work = accel_opencl.work;
		_exit(sum_in_threads() ? 10 * built + taken : 99);
	}
	if (child < 0 || waitpid(child, &status, 0) != child ||
	    !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

/* Turns the only file into one that is whole, and that no runtime takes. */
static void keep_nonsense(void)
{
	static const char nonsense[] = "no program";
	struct binary_key key;
	DIR *d = opendir(kept);
	struct dirent *e;

	while ((e = readdir(d)))
		if (!sodium_hex2bin(key.hash, sizeof(key.hash), e->d_name,
				    strlen(e->d_name), NULL, NULL, NULL))
			break;
	closedir(d);
	if (e)
		binary_cache_keep(&key, nonsense, sizeof(nonsense));
}

/* One after the other, before this process has a runtime */
static int first, second, without, nonsense, mended;

static void run_processes(void)
{
	char command[64];
	pid_t child;

	if (!mkdtemp(kept))
		return;
	first = process_of(kept);
	second = process_of(kept);
	without = process_of("");
	child = fork(); /* since parameters are read once */
	if (child == 0) {
		setenv("DICOMM_CACHE_DIR", kept, 1);
		keep_nonsense();
		_exit(0);
	}
	waitpid(child, NULL, 0);
	nonsense = process_of(kept);
	mended = process_of(kept);
	snprintf(command, sizeof(command), "rm -rf %s", kept);
	if (system(command))
		mended = -1;
}

START_TEST(a_kernel_is_built_once_for_all_processes)
{
	ck_assert_int_eq(first, 10);
	ck_assert_int_eq(second, 1);
	ck_assert_int_eq(without, 10);
}
END_TEST

START_TEST(what_the_runtime_refuses_is_built_again)
{
	ck_assert_int_eq(nonsense, 10);
	ck_assert_int_eq(mended, 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("opencl");
	TCase *t = tcase_create("opencl");
	char why[256];

	/* First: the runtime does not live on in the child of a fork. */
	if (dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL)) {
		no_platform_status = without_platforms();
		run_processes();
	}
	if (!accel_opencl.count(why, sizeof(why))) {
		printf("skipped: %s\n", why);
		return 77;
	}
	work = accel_opencl.work;
	streams_use(&accel_opencl);
	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, streams_setup, streams_teardown);
	tcase_add_test(t, devices_are_described);
	tcase_add_test(t, memory_is_the_hosts);
	tcase_add_test(t, what_it_lacks_is_refused);
	streams_add_tests(t);
	tcase_add_test(t, kernels_run_in_the_order_of_the_stream);
	tcase_add_test(t, a_queue_of_the_user_is_a_stream);
	tcase_add_test(t, an_unordered_queue_is_refused);
	tcase_add_test(t, a_kernel_is_built_once_for_all_processes);
	tcase_add_test(t, what_the_runtime_refuses_is_built_again);
	tcase_add_test(t, without_a_platform_there_are_no_devices);
	suite_add_tcase(s, t);
	return runner_main_here(s);
}
