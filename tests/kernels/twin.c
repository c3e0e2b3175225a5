/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels of devices, compiled by the C compiler. */
#include "tests/kernels/twin.h"

#include <string.h>

static _Thread_local uint64_t current_thread;

#define THREAD current_thread
#define KERNEL static void
#define INLINE static inline __attribute__((unused))
/* Parameters that only some types need */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "src/accel/kernels/reduce.cl"
#pragma GCC diagnostic warning "-Wunused-parameter"

typedef void (*reduce_kernel)(u8 *, const u8 *, const u8 *, u64, u64);
typedef void (*fold_kernel)(u8 *, const u8 *, const u8 *, const u8 *,
			    const u8 *, const u8 *, const u8 *, const u8 *,
			    const u8 *, u64, u64, u64, u64);
typedef void (*scalar_kernel)(u8 *, const u8 *, const u8 *, u64, u64, u64);

static const struct entry {
	const char *name;
	reduce_kernel reduce;
	fold_kernel fold;
	scalar_kernel scalar;
} entries[] = {
#define BOTH(op)                                        \
	{.name = "reduce_" #op, .reduce = reduce_##op}, \
		{.name = "fold_" #op, .fold = fold_##op},
#define ONE(op) {.name = #op, .scalar = op},
#define INTEGERS(bits)      \
	BOTH(sum_u##bits)   \
	BOTH(prod_u##bits)  \
	BOTH(max_i##bits)   \
	BOTH(min_i##bits)   \
	BOTH(max_u##bits)   \
	BOTH(min_u##bits)   \
	ONE(scale_u##bits)  \
	ONE(divide_i##bits) \
	ONE(divide_u##bits)
#define FLOATS(t)      \
	BOTH(sum_##t)  \
	BOTH(prod_##t) \
	BOTH(avg_##t)  \
	BOTH(max_##t)  \
	BOTH(min_##t)  \
	ONE(scale_##t) \
	ONE(divide_##t)
	/* clang-format off */
	INTEGERS(8) INTEGERS(16) INTEGERS(32) INTEGERS(64)
	BOTH(band) BOTH(bor) BOTH(bxor)
	FLOATS(f16) FLOATS(bf16) FLOATS(e4m3) FLOATS(e5m2) FLOATS(e4m3fnuz)
	FLOATS(e5m2fnuz) FLOATS(f32) FLOATS(f64)
	/* clang-format on */
	{NULL, NULL, NULL, NULL},
};

#define P(i) ((u8 *)(uintptr_t)args[i])

static void run_thread(const struct entry *e, const uint64_t *args)
{
	if (e->reduce)
		e->reduce(P(0), P(1), P(2), args[3], args[4]);
	else if (e->fold)
		e->fold(P(0), P(1), P(2), P(3), P(4), P(5), P(6), P(7), P(8),
			args[9], args[10], args[11], args[12]);
	else
		e->scalar(P(0), P(1), P(2), args[3], args[4], args[5]);
}

bool twin_run(const char *kernel, const uint64_t *args, int nargs)
{
	const struct entry *e = entries;
	uint64_t threads = args[nargs - 1];

	while (e->name && strcmp(e->name, kernel) != 0)
		e++;
	if (!e->name || nargs != (e->reduce ? 5 : e->fold ? 13 : 6))
		return false;
	for (current_thread = 0; current_thread < threads; current_thread++)
		run_thread(e, args);
	return true;
}

const struct twin_codec twin_codecs[] = {
	{"f16", f16_decode, f16_encode},
	{"bf16", bf16_decode, bf16_encode},
	{"e4m3", e4m3_decode, e4m3_encode},
	{"e5m2", e5m2_decode, e5m2_encode},
	{"e4m3fnuz", e4m3fnuz_decode, e4m3fnuz_encode},
	{"e5m2fnuz", e5m2fnuz_decode, e5m2fnuz_encode},
	{NULL, NULL, NULL},
};
