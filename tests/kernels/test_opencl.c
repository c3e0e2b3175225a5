/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels as an OpenCL runtime compiles and runs them, through our backend,
 * against the reducers of the CPU. */
#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/accel/accel.h"
#include "src/base/log.h"
#include "tests/kernels/suite.h"
#include "tests/support/runner.h"

extern const struct accel accel_opencl;

static const struct accel_work *work;
static struct accel_stream *stream;
static struct accel_event *done;

/* Bounded by the timeout of the test */
static bool finish(dicomm_result_t status)
{
	if (status != DICOMM_SUCCESS ||
	    work->event_record(done, stream) != DICOMM_SUCCESS)
		return false;
	while ((status = work->event_query(done)) == DICOMM_AGAIN)
		sched_yield();
	return status == DICOMM_SUCCESS;
}

static bool ready(dicomm_datatype_t type)
{
	return work->prepare(stream, type) == DICOMM_SUCCESS;
}

static bool run_reduce(dicomm_datatype_t type, dicomm_redop_t op, void *dst,
		       const void *a, const void *b, size_t n)
{
	return ready(type) &&
	       finish(work->reduce(stream, type, op, dst, a, b, n));
}

static bool run_fold(dicomm_datatype_t type, dicomm_redop_t op, void *dst,
		     const void *const *src, int nsrc, size_t n)
{
	return ready(type) &&
	       finish(work->fold(stream, type, op, dst, src, nsrc, n));
}

static bool run_scale(dicomm_datatype_t type, void *dst, const void *a,
		      const void *scalar_at, uint64_t scalar, size_t n)
{
	return ready(type) &&
	       finish(work->scale(stream, type, dst, a, scalar_at, scalar, n));
}

static bool run_divide(dicomm_datatype_t type, void *dst, const void *a,
		       uint64_t divisor, size_t n)
{
	return ready(type) &&
	       finish(work->divide(stream, type, dst, a, (long)divisor, n));
}

static void *plain_alloc(size_t bytes)
{
	void *p;

	return posix_memalign(&p, 64, bytes) ? NULL : p;
}

int main(void)
{
	const struct executor e = {
		.alloc = plain_alloc,
		.free = free,
		.reduce = run_reduce,
		.fold = run_fold,
		.scale = run_scale,
		.divide = run_divide,
		.rows = 1,
	};
	Suite *s = suite_create("opencl");
	dicomm_device_info_t info;
	char why[256];
	int status;

	if (!accel_opencl.count(why, sizeof(why))) {
		printf("skipped: %s\n", why);
		return 77;
	}
	work = accel_opencl.work;
	if (accel_opencl.describe(0, &info) != DICOMM_SUCCESS ||
	    work->open(0, NULL, &stream) != DICOMM_SUCCESS ||
	    work->event_create(0, &done) != DICOMM_SUCCESS)
		return EXIT_FAILURE;
	printf("%s: %s, %s\n", info.name, info.vendor, info.description);
	suite_add(s, &e);
	/* The runtime does not live on in the child of a fork. */
	status = runner_main_here(s);
	work->event_destroy(done);
	work->close(stream);
	return status;
}
