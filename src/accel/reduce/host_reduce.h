/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions that the host does for a device without kernels: the device copies
 * the operands to pinned memory, a function of the host reduces them there in
 * its turn, and the device copies the result back.
 */
#ifndef DICOMM_ACCEL_REDUCE_HOST_REDUCE_H
#define DICOMM_ACCEL_REDUCE_HOST_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

/* Pinned memory of a stream; a piece of all operands has to fit into it. */
#define HOST_REDUCE_BYTES ((size_t)4 << 20)

enum host_reduce_kind {
	HOST_REDUCE_REDUCE,
	HOST_REDUCE_FOLD,
	HOST_REDUCE_SCALE,
	HOST_REDUCE_DIVIDE
};

/* An operation; or a piece of it, whose operands lie `pitch` bytes apart. */
struct host_reduce {
	enum host_reduce_kind kind;
	dicomm_datatype_t type;
	dicomm_redop_t op;
	int nsrc;
	long divisor;
	/* The bits of the scalar; unless it is copied behind the operand, from
	 * there in the memory of the device. */
	uint64_t scalar;
	const void *scalar_at;
	unsigned char *at;
	size_t pitch, n;
};

/* Is there such an operation? */
bool host_reduce_valid(const struct host_reduce *p);

/* Elements of a piece of an operation with so many operands, which lie *pitch
 * bytes apart. 0: they are too many. */
size_t host_reduce_piece(dicomm_datatype_t type, int operands, size_t *pitch);
/* Reduce a piece; the result takes the place of its first operand. */
void host_reduce_run(const struct host_reduce *p);

#endif
