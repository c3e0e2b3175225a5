/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One piece of a reduction that the host does for a device without kernels. The
 * device copies the operands to pinned memory, a host function in the stream
 * reduces them there, and the device copies the result back.
 */
#ifndef DICOMM_ACCEL_REDUCE_HOST_REDUCE_H
#define DICOMM_ACCEL_REDUCE_HOST_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

/* Pinned memory of a stream, in bytes. One piece of all operands has to fit. */
#define HOST_REDUCE_BYTES ((size_t)4 << 20)

enum host_reduce_kind {
	HOST_REDUCE_REDUCE,
	HOST_REDUCE_FOLD,
	HOST_REDUCE_SCALE,
	HOST_REDUCE_DIVIDE
};

/* An operation, or one piece of it. In a piece, the operands lie in pinned
 * memory from `at` on, pitch bytes apart, and have n elements each. */
struct host_reduce {
	enum host_reduce_kind kind;
	dicomm_datatype_t type;
	dicomm_redop_t op;
	int nsrc;
	long divisor;
	/* For HOST_REDUCE_SCALE: if scalar_at is NULL, scalar holds the bits of
	 * the factor. Otherwise the device copies the factor from scalar_at, in
	 * its memory, to the place behind the operand. */
	uint64_t scalar;
	const void *scalar_at;
	unsigned char *at;
	size_t pitch, n;
};

/* Returns true if the operation is defined for its type. */
bool host_reduce_valid(const struct host_reduce *p);

/* Returns how many elements of each operand a piece has for that number of
 * operands, and in *pitch how many bytes apart they lie. Returns 0 if there are
 * too many operands. */
size_t host_reduce_piece(dicomm_datatype_t type, int operands, size_t *pitch);
/* Reduce one piece. The result overwrites the first operand. */
void host_reduce_run(const struct host_reduce *p);

#endif
