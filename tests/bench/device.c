/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a device does by itself, for perftest/gpu-bench: how fast it copies in
 * its own memory, how fast the reduce kernels are beside that, and how long two
 * kernels take that have nothing to do. Not a test: nothing here passes or
 * fails. Each line is a name, a number and its unit.
 *
 * tests/bench/device DEVICE BYTES
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/accel/accel.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/type.h"

#define CALLS 20
#define REPEATS 5

static const struct accel *accel;
static const struct accel_work *work;
static struct accel_stream *stream;
static struct accel_event *event;
static uint8_t *dst, *a, *b;

static dicomm_result_t copy(dicomm_datatype_t type, size_t n)
{
	return work->copy(stream, dst, a, n * type_bytes(type));
}

static dicomm_result_t reduce(dicomm_datatype_t type, size_t n)
{
	return work->reduce(stream, type, DICOMM_SUM, dst, a, b, n);
}

/* As short as a kernel gets; an empty one has no other cost to the host. */
static dicomm_result_t twice_nothing(dicomm_datatype_t type, size_t n)
{
	TRY(reduce(type, n));
	return reduce(type, n);
}

static dicomm_result_t finish(void)
{
	dicomm_result_t status;

	TRY(work->event_record(event, stream));
	while ((status = work->event_query(event)) == DICOMM_AGAIN)
		sched_yield();
	return status;
}

/* Seconds of one call: the best of a few averages of calls that are queued one
 * behind the other, or of such that the host waits for. */
static dicomm_result_t
measure(dicomm_result_t (*call)(dicomm_datatype_t type, size_t n),
	dicomm_datatype_t type, size_t n, bool waits, double *seconds)
{
	*seconds = 1e30;
	for (int r = 0; r <= REPEATS; r++) {
		uint64_t begin = clock_ns();
		double s;

		for (int i = 0; i < CALLS; i++) {
			TRY(call(type, n));
			if (waits)
				TRY(finish());
		}
		TRY(finish());
		s = (double)(clock_ns() - begin) * 1e-9 / CALLS;
		/* The first is to warm up. */
		if (r && s < *seconds)
			*seconds = s;
	}
	return DICOMM_SUCCESS;
}

static dicomm_result_t bench(size_t bytes)
{
	static const dicomm_datatype_t types[] = {
		DICOMM_FLOAT32, DICOMM_BFLOAT16, DICOMM_FLOAT16};
	double s;

	TRY(measure(copy, DICOMM_UINT8, bytes, false, &s));
	printf("copy %.3f GB/s\n", 2 * (double)bytes / s / 1e9);
	for (int t = 0; t < 3; t++) {
		TRY(work->prepare(stream, types[t]));
		TRY(measure(reduce, types[t], bytes / type_bytes(types[t]),
			    false, &s));
		printf("%s %.3f GB/s\n", type_name(types[t]),
		       3 * (double)bytes / s / 1e9);
	}
	TRY(measure(twice_nothing, DICOMM_FLOAT32, 1, true, &s));
	printf("launches %.3f us\n", s * 1e6);
	return DICOMM_SUCCESS;
}

static dicomm_result_t prepare(int index, size_t bytes)
{
	void *memory = NULL;

	TRY(accel->alloc(index, 3 * bytes, &memory));
	dst = memory;
	a = dst + bytes;
	b = a + bytes;
	TRY(work->open(index, NULL, &stream));
	return work->event_create(index, &event);
}

int main(int argc, char **argv)
{
	size_t bytes = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
	char why[256] = "";
	int index;

	if (!bytes || bytes % 4096) {
		fprintf(stderr, "usage: %s DEVICE BYTES: a multiple of 4096\n",
			argv[0]);
		return 2;
	}
	accel = accel_find(argv[1], &index, why, sizeof(why));
	if (!accel || !accel->work) {
		fprintf(stderr, "device %s: %s\n", argv[1],
			accel ? "has no kernels" : why);
		return 77;
	}
	work = accel->work;
	if (prepare(index, bytes) != DICOMM_SUCCESS ||
	    bench(bytes) != DICOMM_SUCCESS)
		return 1;
	work->event_destroy(event);
	work->close(stream);
	accel->free(dst);
	return 0;
}
