/* SPDX-License-Identifier: BSD-3-Clause */
/* Operators that the user creates: sums whose inputs are scaled first. */
#include "src/core/redop.h"

#include <string.h>

#include "src/base/cancel.h"
#include "src/base/log.h"
#include "src/base/type.h"
#include "src/core/host_access.h"
#include "src/device/device.h"
#include "src/engine/prepare.h"

/* A number that was never used before. Queued calls and cached prepared calls
 * keep the scalar of their own operator. */
static dicomm_redop_t op_number(int i, struct created_op *c)
{
	return (dicomm_redop_t)(0x100 + i +
				COMM_OPS * (int)(c->uses++ % (1u << 24)));
}

dicomm_result_t dicomm_redop_create_premulsum(
	dicomm_redop_t *op, const void *scalar, dicomm_datatype_t type,
	dicomm_scalar_residence_t residence, dicomm_comm_t comm)
{
	CANCEL_HELD();
	static const char f[] = "redop_create_premulsum";

	TRY(comm_check(comm, f));
	if (!op)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "%s: op is NULL", f);
	if (!scalar)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "%s: scalar is NULL",
			    f);
	if (!type_valid(type))
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s: type %d: no such datatype", f, (int)type);
	if (!type_scales(type))
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s: type %s: not scaled", f, type_name(type));
	if (residence != DICOMM_SCALAR_DEVICE &&
	    residence != DICOMM_SCALAR_HOST_IMMEDIATE)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s: residence %d: neither device nor host", f,
			    (int)residence);
	if (residence == DICOMM_SCALAR_DEVICE)
		TRY(device_check(comm, f, "scalar", scalar));
	else
		TRY(host_access_check(comm, f, "scalar", scalar));
	for (int i = 0; i < COMM_OPS; i++) {
		struct created_op *c = &comm->ops[i];

		if (c->used)
			continue;
		c->type = type;
		c->scalar_at = NULL;
		/* For a host rank, "device" memory is host memory. */
		if (comm->dev && residence == DICOMM_SCALAR_DEVICE)
			c->scalar_at = scalar;
		else
			memcpy(c->scalar, scalar, type_bytes(type));
		c->used = true;
		c->op = op_number(i, c);
		*op = c->op;
		return DICOMM_SUCCESS;
	}
	return FAIL(DICOMM_ERR_INVALID_USAGE,
		    "%s: this communicator has %d created operators already", f,
		    COMM_OPS);
}

dicomm_result_t dicomm_redop_destroy(dicomm_redop_t op, dicomm_comm_t comm)
{
	CANCEL_HELD();
	struct created_op *c;

	TRY(comm_check_handle(comm, "redop_destroy"));
	c = comm_created_op(comm, op);
	if (!c)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "redop_destroy: op %d: no created operator of this "
			    "communicator",
			    (int)op);
	c->used = false;
	/* Another thread may use the cached calls now. Leave them; they age
	 * out. */
	if (data_path_enter(&comm->path) == DATA_PATH_ENTERED) {
		prepare_forget_op(comm, op);
		data_path_leave(&comm->path);
	}
	return DICOMM_SUCCESS;
}
