/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How fast the reducers are: GB/s of result, each type, operator and
 * instruction set, for operands in the second cache and in memory. Not a test:
 * nothing here passes or fails.
 *
 * tests/bench/reduce [instruction set]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/accel/reduce/reduce.h"
#include "src/accel/reduce/kernels.h"
#include "src/base/type.h"

#define MIN_S 0.02
#define REPEATS 5
#define CACHED_BYTES ((size_t)256 << 10)
#define MEMORY_BYTES ((size_t)64 << 20)

struct operands {
	unsigned char *dst, *a, *b;
};

/* Of this thread alone: other programs take time, too. */
static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void copy(void *dst, const void *a, const void *b, size_t bytes)
{
	(void)b;
	memcpy(dst, a, bytes);
}

static void copy_stream(void *dst, const void *a, const void *b, size_t bytes)
{
	(void)b;
	reduce_copy_stream(dst, a, bytes);
}

/* Seconds of one call: the best of a few averages. The clock is read so seldom
 * that it does not show. */
static double seconds(reduce_fn fn, const struct operands *o, size_t n)
{
	long calls = 1;
	double best = 1e30;

	for (int r = 0; r < REPEATS;) {
		double start = now_s(), s;

		for (long i = 0; i < calls; i++)
			fn(o->dst, o->a, o->b, n);
		s = now_s() - start;
		if (s < MIN_S) {
			calls *= 2;
			continue;
		}
		best = s / (double)calls < best ? s / (double)calls : best;
		r++;
	}
	return best;
}

static void row(const char *isa, const char *type, const char *op, reduce_fn fn,
		reduce_fn stream, const struct operands *o, size_t elem)
{
	double cached = seconds(fn, o, CACHED_BYTES / elem);
	double memory = seconds(fn, o, MEMORY_BYTES / elem);
	double streamed = seconds(stream, o, MEMORY_BYTES / elem);
	double few_s = seconds(fn, o, 2), some_s = seconds(fn, o, 16);

	printf("%-7s %-12s %-5s %8.2f %8.2f %8.2f %8.1f %8.1f\n", isa, type, op,
	       (double)CACHED_BYTES / cached / 1e9,
	       (double)MEMORY_BYTES / memory / 1e9,
	       (double)MEMORY_BYTES / streamed / 1e9, few_s * 1e9,
	       some_s * 1e9);
	fflush(stdout);
}

static void measure(const struct reduce_kernels *k, const struct operands *o)
{
	reduce_kernels_force(k);
	row(k->isa, "bytes", "copy", copy, copy_stream, o, 1);
	for (int t = 0; t < TYPE_LIMIT; t++)
		for (int op = 0; op < REDUCE_OP_LIMIT; op++) {
			dicomm_datatype_t type = (dicomm_datatype_t)t;
			dicomm_redop_t redop = (dicomm_redop_t)op;
			reduce_fn fn = reduce_kernel(type, redop, false);

			if (fn && redop != DICOMM_AVG)
				row(k->isa, type_name(type), op_name(redop), fn,
				    reduce_kernel(type, redop, true), o,
				    type_bytes(type));
		}
}

int main(int argc, char **argv)
{
	struct operands o = {
		.dst = aligned_alloc(4096, MEMORY_BYTES),
		.a = aligned_alloc(4096, MEMORY_BYTES),
		.b = aligned_alloc(4096, MEMORY_BYTES),
	};
	const struct reduce_kernels *k;

	if (!o.dst || !o.a || !o.b) {
		fprintf(stderr, "reduce_bench: out of memory\n");
		return 1;
	}
	/* Ordinary numbers of every float type: no NaN, no float32 denormal */
	memset(o.dst, 0, MEMORY_BYTES);
	memset(o.a, 0x3c, MEMORY_BYTES);
	memset(o.b, 0x3a, MEMORY_BYTES);
	printf("GB/s of result from %zu KiB, %zu MiB, %zu MiB streamed; ns of "
	       "2 "
	       "and 16 elements\n",
	       CACHED_BYTES >> 10, MEMORY_BYTES >> 20, MEMORY_BYTES >> 20);
	for (int i = 0; (k = reduce_kernels_usable(i)); i++)
		if (argc < 2 || strcmp(argv[1], k->isa) == 0)
			measure(k, &o);
	free(o.dst);
	free(o.a);
	free(o.b);
	return 0;
}
