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
	/* How often this entry was used; see op_number() in api/redop.c. */
	unsigned uses;
	dicomm_redop_t op; /* number of the latest operator in this entry */
	dicomm_datatype_t type;
	uint8_t scalar[8];
	const void *scalar_at;
};

/* Returns NULL if the communicator has no operator of that number. */
struct created_op *comm_created_op(struct dicomm_comm *comm, dicomm_redop_t op);

#endif
