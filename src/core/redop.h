/* SPDX-License-Identifier: BSD-3-Clause */
/* Operators that users create. */
#ifndef DICOMM_CORE_REDOP_H
#define DICOMM_CORE_REDOP_H

#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"

struct dicomm_comm;

#define COMM_OPS 64
struct created_op {
	bool used;
	unsigned uses;     /* so far; see op_number() */
	dicomm_redop_t op; /* of the latest */
	dicomm_datatype_t type;
	uint8_t scalar[8];
	const void *scalar_at;
};

/* NULL: the communicator has none of that number. */
struct created_op *comm_created_op(struct dicomm_comm *comm, dicomm_redop_t op);

#endif
