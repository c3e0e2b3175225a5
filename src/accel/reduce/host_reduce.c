/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions that the host does for a device without kernels. */
#include "src/accel/reduce/host_reduce.h"

#include <string.h>

#include "src/accel/reduce/reduce.h"
#include "src/base/type.h"

/* Operands begin at a multiple of the size of a cache line. */
#define LINE 64

bool host_reduce_valid(const struct host_reduce *p)
{
	switch (p->kind) {
	case HOST_REDUCE_SCALE:
		return reduce_scale_kernel(p->type);
	case HOST_REDUCE_DIVIDE:
		return p->divisor > 0 && reduce_divide_kernel(p->type);
	default:
		return reduce_kernel(p->type, p->op, false);
	}
}

/* Leaves room behind the operands for their addresses, which fold() does not
 * put on the stack: that of a driver's thread may be small. */
size_t host_reduce_piece(dicomm_datatype_t type, int operands, size_t *pitch)
{
	size_t share = HOST_REDUCE_BYTES / (size_t)operands;

	*pitch = share > sizeof(void *) ? (share - sizeof(void *)) / LINE * LINE
					: 0;
	return *pitch / type_bytes(type);
}

static void fold(const struct host_reduce *p)
{
	const void **src = (const void **)(p->at + (size_t)p->nsrc * p->pitch);

	for (int i = 0; i < p->nsrc; i++)
		src[i] = p->at + (size_t)i * p->pitch;
	reduce_fold(p->type, p->op, p->at, src, p->nsrc, p->n);
}

void host_reduce_run(const struct host_reduce *p)
{
	switch (p->kind) {
	case HOST_REDUCE_REDUCE:
		reduce_kernel(p->type, p->op, false)(p->at, p->at,
						     p->at + p->pitch, p->n);
		break;
	case HOST_REDUCE_FOLD:
		fold(p);
		break;
	case HOST_REDUCE_SCALE:
		if (!p->scalar_at)
			memcpy(p->at + p->pitch, &p->scalar, sizeof(p->scalar));
		reduce_scale_kernel(p->type)(p->at, p->at, p->at + p->pitch,
					     p->n);
		break;
	case HOST_REDUCE_DIVIDE:
		reduce_divide_kernel(p->type)(p->at, p->at, p->divisor, p->n);
		break;
	}
}
