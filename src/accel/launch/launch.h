/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Turns a reduction into the launch of a kernel of src/accel/kernels/reduce.cl:
 * the module, the name of the kernel, and its arguments. They are the same for
 * all devices. src/accel/reduce/reduce.h defines the operations.
 */
#ifndef DICOMM_ACCEL_LAUNCH_LAUNCH_H
#define DICOMM_ACCEL_LAUNCH_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

/* Threads in a block. The kernels are compiled for this number. */
#define LAUNCH_BLOCK 256
/* Sources of a fold that may lie anywhere in memory. */
#define LAUNCH_SOURCES 8
#define LAUNCH_ARGS (LAUNCH_SOURCES + 5)

/* A module holds the kernels of one type and is compiled separately. The order
 * is that of REDUCE_I8 ... in reduce.cl, which begin at 1. */
enum launch_module {
	LAUNCH_I8,
	LAUNCH_I16,
	LAUNCH_I32,
	LAUNCH_I64,
	LAUNCH_F16,
	LAUNCH_BF16,
	LAUNCH_E4M3,
	LAUNCH_E5M2,
	LAUNCH_E4M3FNUZ,
	LAUNCH_E5M2FNUZ,
	LAUNCH_F32,
	LAUNCH_F64,
	LAUNCH_MODULES
};

/* The launch of one kernel. Every argument has 64 bits. The first npointers
 * arguments are pointers, the last is the number of threads. */
struct launch {
	enum launch_module module;
	char kernel[24];
	int nargs, npointers;
	uint64_t args[LAUNCH_ARGS];
	uint64_t items; /* pieces of work that can run in parallel */
	uint32_t many;  /* items that a thread reads before it stores any */
};

/* "f16" */
const char *launch_module_name(enum launch_module module);

/*
 * These fill in *l. Each returns false if the type does not have the operator.
 * Pointers are device pointers; n is in elements.
 */
bool launch_reduce(struct launch *l, dicomm_datatype_t type, dicomm_redop_t op,
		   void *dst, const void *a, const void *b, size_t n);
/* nsrc >= 2. Source i >= LAUNCH_SOURCES must lie at one fixed distance, a
 * multiple of 16, behind source i - LAUNCH_SOURCES; otherwise this returns
 * false, too. */
bool launch_fold(struct launch *l, dicomm_datatype_t type, dicomm_redop_t op,
		 void *dst, const void *const *src, int nsrc, size_t n);
/* The device reads the scalar at scalar_at, in its memory. If scalar_at is
 * NULL, scalar holds the bits of the element. */
bool launch_scale(struct launch *l, dicomm_datatype_t type, void *dst,
		  const void *a, const void *scalar_at, uint64_t scalar,
		  size_t n);
/* dst[i] = a[i] / divisor; 0 < divisor < 2^31. */
bool launch_divide(struct launch *l, dicomm_datatype_t type, void *dst,
		   const void *a, uint64_t divisor, size_t n);

/* Returns how many blocks of `block` threads to start, at least 1 and at most
 * max_blocks. If threads get more than one item, the number is chosen so that
 * they read almost all items `many` at a time. Sets the argument that tells the
 * kernel the number of threads. */
uint32_t launch_grid(struct launch *l, uint32_t block, uint32_t max_blocks);

#endif
