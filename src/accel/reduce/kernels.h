/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernels of one instruction set. The same source is compiled once for each
 * instruction set. Only reduce.c and its tests include this.
 */
#ifndef DICOMM_ACCEL_REDUCE_KERNELS_H
#define DICOMM_ACCEL_REDUCE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "dicomm.h"
#include "src/accel/reduce/reduce.h"
#include "src/base/type.h"

#define REDUCE_OP_LIMIT (DICOMM_BXOR + 1)

struct reduce_kernels {
	const char *isa;
	/* Tables indexed by stream, type and operator; NULL where undefined. */
	reduce_fn op[2][TYPE_LIMIT][REDUCE_OP_LIMIT];
	scale_fn scale[TYPE_LIMIT];
	scale_fn average[TYPE_LIMIT];
	divide_fn divide[TYPE_LIMIT];
	/* For folds of floats below 32 bits, which sum in float32. The caller
	 * sets the floating-point state (fp_state.h). unpack: converts to
	 * float32. add: acc[i] += a[i]. add_average: the same, but a sum of
	 * finite numbers stays finite. multiply: acc[i] *= a[i]. clamp:
	 * limits finite numbers to +-most. pack: converts back, rounded to
	 * nearest even. */
	void (*unpack[TYPE_LIMIT])(float *acc, const void *a, size_t n);
	void (*add[TYPE_LIMIT])(float *acc, const void *a, size_t n);
	void (*add_average[TYPE_LIMIT])(float *acc, const void *a, size_t n);
	void (*multiply[TYPE_LIMIT])(float *acc, const void *a, size_t n);
	void (*pack[TYPE_LIMIT])(void *dst, const float *acc, size_t n);
	void (*clamp)(float *acc, float most, size_t n);
	void (*copy_stream)(void *dst, const void *src, size_t bytes);
};

extern const struct reduce_kernels reduce_kernels_base;
#ifdef __x86_64__
extern const struct reduce_kernels reduce_kernels_avx2;
extern const struct reduce_kernels reduce_kernels_avx512;
#endif

/* Returns the best set of kernels that this processor can run (index 0), the
 * second best (1), and so on, or NULL if index is too large. */
const struct reduce_kernels *reduce_kernels_usable(int index);
/* For tests: use these kernels from now on. No other thread may
 * reduce meanwhile. */
void reduce_kernels_force(const struct reduce_kernels *kernels);

#endif
