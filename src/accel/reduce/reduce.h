/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions on the CPU, vectorised for the processor that runs them.
 *
 * Narrow floats (below 32 bits) compute in float32 and round to nearest even. A
 * NaN of any float type becomes the canonical quiet NaN of its type: only the
 * highest bit of the significand set beside the exponent (0x7fc00000, 0x7e for
 * e5m2); 0x7f for e4m3, 0x80 for FNUZ. A result above the largest value becomes
 * infinity, or NaN in a type without infinity. Only AVG saturates: a sum of
 * finite numbers that exceeds the largest value becomes that value. max and min
 * give NaN if either operand is NaN, and order -0 below +0. So every operator
 * but PROD, SUM and AVG of floats is exactly associative, and all are
 * commutative. Integers wrap.
 *
 * Results have the same bits on every processor, whatever rounding mode or
 * treatment of denormals the calling thread has set (fp_state.h).
 *
 * Elements need no alignment. dst may be a or b; otherwise it does not overlap
 * them. Threads: any.
 */
#ifndef DICOMM_ACCEL_REDUCE_REDUCE_H
#define DICOMM_ACCEL_REDUCE_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include "dicomm.h"

/* dst[i] = a[i] op b[i] for i < n elements */
typedef void (*reduce_fn)(void *dst, const void *a, const void *b, size_t n);
/* dst[i] = a[i] * *scalar. scalar points to one element of the type. */
typedef void (*scale_fn)(void *dst, const void *a, const void *scalar,
			 size_t n);
/* dst[i] = a[i] / divisor; divisor > 0. Integers round toward zero. Floats are
 * multiplied by 1 / divisor, in the same way as an average scales its
 * inputs. */
typedef void (*divide_fn)(void *dst, const void *a, long divisor, size_t n);

/*
 * Kernels of the built-in operators. AVG sums inputs that the caller has
 * scaled, or integers whose sum the caller divides afterwards. Each function
 * returns NULL where the pair is not defined, such as bitwise operators on
 * floats. With `stream`, the kernel writes dst with non-temporal stores, if the
 * processor has them, and ends in a store fence. That is for large results that
 * nobody reads soon.
 */
reduce_fn reduce_kernel(dicomm_datatype_t type, dicomm_redop_t op, bool stream);
scale_fn reduce_scale_kernel(dicomm_datatype_t type);
/* dst[i] = a[i] * *scalar, computed in float32 and rounded once. scalar comes
 * from reciprocal_of(). Returns NULL for integers. */
scale_fn reduce_average_kernel(dicomm_datatype_t type);
divide_fn reduce_divide_kernel(dicomm_datatype_t type);

/* dst[i] = ((src[0][i] op src[1][i]) op ...) op src[nsrc - 1][i], in this
 * order. Narrow floats accumulate in float32 and round once. A single source is
 * copied bit by bit. dst may be one of src. */
void reduce_fold(dicomm_datatype_t type, dicomm_redop_t op, void *dst,
		 const void *const *src, int nsrc, size_t n);

/* dst[i] = weight[0] * src[0][i] + weight[1] * src[1][i] + ..., in this order;
 * floats only. Each product and each sum is rounded, narrow floats in float32
 * and once more at the end. dst may be one of src. */
void reduce_weighted(dicomm_datatype_t type, void *dst, const void *const *src,
		     const double *weight, int nsrc, size_t n);

/* memcpy() with non-temporal stores. Ends in a store fence. */
void reduce_copy_stream(void *dst, const void *src, size_t bytes);

/* Returns the chosen instruction set: "avx512", "avx2" or "base". */
const char *reduce_isa(void);

#endif
