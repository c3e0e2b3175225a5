/* SPDX-License-Identifier: BSD-3-Clause */
/* Turns a reduction into the launch of a kernel of reduce.cl. */
#include "src/accel/launch/launch.h"

#include <assert.h>
#include <stdio.h>

#include "src/accel/reduce/reciprocal.h"
#include "src/base/type.h"

static const char *const module_names[LAUNCH_MODULES] = {
	[LAUNCH_I8] = "i8",
	[LAUNCH_I16] = "i16",
	[LAUNCH_I32] = "i32",
	[LAUNCH_I64] = "i64",
	[LAUNCH_F16] = "f16",
	[LAUNCH_BF16] = "bf16",
	[LAUNCH_E4M3] = "e4m3",
	[LAUNCH_E5M2] = "e5m2",
	[LAUNCH_E4M3FNUZ] = "e4m3fnuz",
	[LAUNCH_E5M2FNUZ] = "e5m2fnuz",
	[LAUNCH_F32] = "f32",
	[LAUNCH_F64] = "f64",
};

/* How the names of a type's kernels end: for kernels where the sign of an
 * integer matters, and for those where it does not. */
static const struct {
	enum launch_module module;
	const char *name, *any_sign;
} types[TYPE_LIMIT] = {
	[DICOMM_INT8] = {LAUNCH_I8, "i8", "u8"},
	[DICOMM_UINT8] = {LAUNCH_I8, "u8", "u8"},
	[DICOMM_INT16] = {LAUNCH_I16, "i16", "u16"},
	[DICOMM_UINT16] = {LAUNCH_I16, "u16", "u16"},
	[DICOMM_INT32] = {LAUNCH_I32, "i32", "u32"},
	[DICOMM_UINT32] = {LAUNCH_I32, "u32", "u32"},
	[DICOMM_INT64] = {LAUNCH_I64, "i64", "u64"},
	[DICOMM_UINT64] = {LAUNCH_I64, "u64", "u64"},
	[DICOMM_FLOAT16] = {LAUNCH_F16, "f16", "f16"},
	[DICOMM_FLOAT32] = {LAUNCH_F32, "f32", "f32"},
	[DICOMM_FLOAT64] = {LAUNCH_F64, "f64", "f64"},
	[DICOMM_BFLOAT16] = {LAUNCH_BF16, "bf16", "bf16"},
	[DICOMM_FLOAT8E4M3] = {LAUNCH_E4M3, "e4m3", "e4m3"},
	[DICOMM_FLOAT8E5M2] = {LAUNCH_E5M2, "e5m2", "e5m2"},
	[DICOMM_FLOAT8E4M3FNUZ] = {LAUNCH_E4M3FNUZ, "e4m3fnuz", "e4m3fnuz"},
	[DICOMM_FLOAT8E5M2FNUZ] = {LAUNCH_E5M2FNUZ, "e5m2fnuz", "e5m2fnuz"},
};

const char *launch_module_name(enum launch_module module)
{
	return module_names[module];
}

static void name_kernel(struct launch *l, dicomm_datatype_t type,
			const char *verb, const char *op, bool any_sign)
{
	int len;

	l->module = types[type].module;
	len = snprintf(l->kernel, sizeof(l->kernel), "%s%s%s_%s", verb,
		       *op ? "_" : "", op,
		       any_sign ? types[type].any_sign : types[type].name);
	assert(len < (int)sizeof(l->kernel));
	(void)len;
}

/* Set the module and name of the kernel for an operator. On return *n is the
 * number of elements of that kernel and *bytes the size of one. Returns false
 * if the type does not have the operator. */
static bool name_operator(struct launch *l, dicomm_datatype_t type,
			  dicomm_redop_t op, const char *verb, size_t *n,
			  size_t *bytes)
{
	if (!op_fits(op, type))
		return false;
	type = type_plain(type, n);
	*bytes = type_bytes(type);
	switch (op) {
	case DICOMM_BAND:
	case DICOMM_BOR:
	case DICOMM_BXOR:
		/* Bitwise operators have one kernel for all types, which works
		 * on bytes. */
		l->module = LAUNCH_I8;
		snprintf(l->kernel, sizeof(l->kernel), "%s_%s", verb,
			 op_name(op));
		*n *= *bytes;
		*bytes = 1;
		return true;
	case DICOMM_AVG:
		/* Only averages of floats differ from sums: they saturate
		 * instead of overflowing. */
		if (!type_is_float(type))
			op = DICOMM_SUM;
		/* fall through */
	case DICOMM_SUM:
	case DICOMM_PROD:
		name_kernel(l, type, verb, op_name(op), true);
		return true;
	case DICOMM_MAX:
	case DICOMM_MIN:
		name_kernel(l, type, verb, op_name(op), false);
		return true;
	default:
		return false;
	}
}

static void arg(struct launch *l, uint64_t value)
{
	l->args[l->nargs++] = value;
}

static void pointer(struct launch *l, const void *p)
{
	arg(l, (uintptr_t)p);
}

/* Append the last arguments: the number of elements, and that of threads, which
 * launch_grid() fills in. */
static void finish(struct launch *l, size_t n, size_t bytes)
{
	arg(l, n);
	arg(l, 0);
	/* Work items are vectors of 16 bytes, and the single elements before
	 * and after them. */
	l->items = n < 64 ? n : n * bytes / 16 + 64;
	l->many = 1;
}

bool launch_reduce(struct launch *l, dicomm_datatype_t type, dicomm_redop_t op,
		   void *dst, const void *a, const void *b, size_t n)
{
	size_t bytes;

	*l = (struct launch){.npointers = 3};
	if (!name_operator(l, type, op, "reduce", &n, &bytes))
		return false;
	pointer(l, dst);
	pointer(l, a);
	pointer(l, b);
	finish(l, n, bytes);
	l->many = 4;
	return true;
}

bool launch_fold(struct launch *l, dicomm_datatype_t type, dicomm_redop_t op,
		 void *dst, const void *const *src, int nsrc, size_t n)
{
	uintptr_t pitch =
		nsrc > LAUNCH_SOURCES
			? (uintptr_t)src[LAUNCH_SOURCES] - (uintptr_t)src[0]
			: 0;
	size_t bytes;

	*l = (struct launch){.npointers = LAUNCH_SOURCES + 1};
	if (nsrc < 2 || !name_operator(l, type, op, "fold", &n, &bytes))
		return false;
	for (int i = LAUNCH_SOURCES; i < nsrc; i++)
		if ((uintptr_t)src[i] - (uintptr_t)src[i - LAUNCH_SOURCES] !=
			    pitch ||
		    pitch % 16)
			return false;
	pointer(l, dst);
	for (int i = 0; i < LAUNCH_SOURCES; i++)
		pointer(l, src[i < nsrc ? i : 0]);
	arg(l, pitch);
	arg(l, (uint64_t)nsrc);
	finish(l, n, bytes);
	return true;
}

bool launch_scale(struct launch *l, dicomm_datatype_t type, void *dst,
		  const void *a, const void *scalar_at, uint64_t scalar,
		  size_t n)
{
	*l = (struct launch){.npointers = 3};
	if (!op_fits(DICOMM_SUM, type))
		return false;
	type = type_plain(type, &n);
	name_kernel(l, type, "scale", "", true);
	pointer(l, dst);
	pointer(l, a);
	pointer(l, scalar_at);
	arg(l, scalar);
	finish(l, n, type_bytes(type));
	return true;
}

bool launch_divide(struct launch *l, dicomm_datatype_t type, void *dst,
		   const void *a, uint64_t divisor, size_t n)
{
	uint64_t scalar = divisor;

	*l = (struct launch){.npointers = 3};
	if (!op_fits(DICOMM_AVG, type) || !divisor || divisor > INT32_MAX)
		return false;
	type = type_plain(type, &n);
	name_kernel(l, type, "divide", "", false);
	pointer(l, dst);
	pointer(l, a);
	pointer(l, NULL);
	if (type_is_float(type))
		reciprocal_of(type, (int)divisor, &scalar);
	arg(l, scalar);
	finish(l, n, type_bytes(type));
	return true;
}

static uint64_t round_up_div(uint64_t n, uint64_t by)
{
	return (n + by - 1) / by;
}

uint32_t launch_grid(struct launch *l, uint32_t block, uint32_t max_blocks)
{
	uint64_t blocks = round_up_div(l->items, block);
	uint64_t of_block = (uint64_t)block * l->many, rounds;

	if (blocks > max_blocks) {
		rounds = round_up_div(l->items, of_block * max_blocks);
		blocks = round_up_div(l->items, of_block * rounds);
	}
	if (blocks < 1)
		blocks = 1;
	l->args[l->nargs - 1] = blocks * block;
	return (uint32_t)blocks;
}
