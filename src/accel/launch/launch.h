/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From a reduction to the launch of a kernel of src/accel/kernels/reduce.cl:
 * which kernel of which module, on which arguments. Common to all devices; what
 * the operations mean is in reduce.h.
 */
#ifndef DICOMM_ACCEL_LAUNCH_LAUNCH_H
#define DICOMM_ACCEL_LAUNCH_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

/* Threads in a block, as the kernels are compiled. */
#define LAUNCH_BLOCK 256
/* Sources of a fold that may lie anywhere. */
#define LAUNCH_SOURCES 8
#define LAUNCH_ARGS (LAUNCH_SOURCES + 5)

/* What is compiled by itself: the kernels of one type. In the order of
 * REDUCE_I8 ... in reduce.cl, which begin at 1. */
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

/* Every argument has 64 bits; the first ones are pointers, the last is the
 * number of threads. */
struct launch {
	enum launch_module module;
	char kernel[24];
	int nargs, npointers;
	uint64_t args[LAUNCH_ARGS];
	uint64_t items; /* that can be worked on at once */
	uint32_t many;  /* of which a thread reads so many before it goes on */
};

/* "f16" */
const char *launch_module_name(enum launch_module module);

/*
 * Each returns false where there is no such kernel: an operator that the type
 * does not have. Pointers are those of the device.
 */
bool launch_reduce(struct launch *l, dicomm_datatype_t type, dicomm_redop_t op,
		   void *dst, const void *a, const void *b, size_t n);
/* nsrc >= 2. Also false for sources beyond LAUNCH_SOURCES that do not each
 * follow the one LAUNCH_SOURCES before it at one distance, a multiple of 16. */
bool launch_fold(struct launch *l, dicomm_datatype_t type, dicomm_redop_t op,
		 void *dst, const void *const *src, int nsrc, size_t n);
/* The scalar is in the memory of the device at scalar_at; if that is NULL, it
 * is the element whose bits are scalar. */
bool launch_scale(struct launch *l, dicomm_datatype_t type, void *dst,
		  const void *a, const void *scalar_at, uint64_t scalar,
		  size_t n);
/* 0 < divisor < 2^31 */
bool launch_divide(struct launch *l, dicomm_datatype_t type, void *dst,
		   const void *a, uint64_t divisor, size_t n);

/* Blocks of `block` threads to start, at least 1 and at most max_blocks: where
 * each has more than one item, so many that all items but a few are read as
 * many at a time. Sets the argument that tells the kernel. */
uint32_t launch_grid(struct launch *l, uint32_t block, uint32_t max_blocks);

#endif
