/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operators that programs create. Those with one scalar are one operator of the
 * library, which has room for 64: a group of PyTorch's creates, uses and
 * destroys one for each tensor, and what it destroys is still in use until the
 * group ends.
 */
#include <stdlib.h>
#include <string.h>

#include "compat/nccl/group.h"

/* So many are kept without a user, for the next who wants the same */
#define KEPT 32

struct nccl_redop {
	dicomm_redop_t op;
	int type;
	const void *at;    /* of a scalar of the device's; NULL: the value */
	bool is_read;      /* at each call, by this layer: a rank of the host */
	uint64_t value;    /* of one of the host's */
	unsigned users;    /* created, and not destroyed */
	unsigned in_calls; /* that wait in groups */
	struct nccl_redop *next;
};

static size_t type_bytes(int type)
{
	static const unsigned char bytes[] = {1, 1, 4, 4, 8, 8,
					      2, 4, 8, 2, 1, 1};

	return type >= 0 && type < (int)sizeof(bytes) ? bytes[type] : 0;
}

static struct nccl_redop *find(struct ncclComm *c, int op)
{
	struct nccl_redop *r = c->redops;

	while (r && (int)r->op != op)
		r = r->next;
	return r;
}

void nccl_redop_hold(struct ncclComm *c, int op, int change)
{
	struct nccl_redop *r = op > (int)ncclAvg ? find(c, op) : NULL;

	if (r)
		r->in_calls += (unsigned)change;
}

void nccl_redop_forget(struct ncclComm *c)
{
	struct nccl_redop *r;

	while ((r = c->redops)) {
		c->redops = r->next;
		free(r);
	}
}

/* All that nobody uses, once there are many. */
static void tidy(struct ncclComm *c)
{
	struct nccl_redop **at = &c->redops, *r;
	unsigned n = 0;

	for (r = c->redops; r; r = r->next)
		n++;
	while (n >= KEPT && (r = *at)) {
		if (r->users || r->in_calls) {
			at = &r->next;
			continue;
		}
		*at = r->next;
		dicomm_redop_destroy(r->op, c->comm);
		free(r);
	}
}

/* Has the library one for a scalar with this value? */
static struct nccl_redop *find_value(struct ncclComm *c, int type,
				     uint64_t value)
{
	struct nccl_redop *r = c->redops;

	while (r && (r->type != type || r->at || r->value != value))
		r = r->next;
	return r;
}

static bool is_host(struct ncclComm *c)
{
	const char *device;

	return dicomm_comm_device(c->comm, &device) == DICOMM_SUCCESS &&
	       !strcmp(device, "host");
}

static ncclResult_t create(ncclRedOp_t *op, const void *scalar, int type,
			   ncclScalarResidence_t residence, struct ncclComm *c)
{
	size_t bytes = type_bytes(type);
	bool host = residence == ncclScalarHostImmediate;
	struct nccl_redop *r;
	dicomm_result_t status;
	uint64_t value = 0;

	if (host)
		memcpy(&value, scalar, bytes);
	r = host ? find_value(c, type, value) : NULL;
	if (r) {
		r->users++;
		*op = (ncclRedOp_t)r->op;
		return ncclSuccess;
	}
	tidy(c);
	r = calloc(1, sizeof(*r));
	if (!r)
		return nccl_refuse(ncclSystemError,
				   "ncclRedOpCreatePreMulSum: out of memory");
	status = dicomm_redop_create_premulsum(
		&r->op, scalar, (dicomm_datatype_t)type,
		(dicomm_scalar_residence_t)residence, c->comm);
	if (status != DICOMM_SUCCESS) {
		free(r);
		return nccl_failed(status);
	}
	r->type = type;
	r->at = host ? NULL : scalar;
	r->is_read = !host && is_host(c);
	r->value = value;
	r->users = 1;
	r->next = c->redops;
	c->redops = r;
	*op = (ncclRedOp_t)r->op;
	return ncclSuccess;
}

ncclResult_t nccl_redop_check(const char *f, struct ncclComm *c, int op)
{
	const struct nccl_redop *r = find(c, op);

	if (r && r->users)
		return ncclSuccess;
	return nccl_refuse(ncclInvalidArgument,
			   "%s: op %d: no operator of this communicator, or it "
			   "was destroyed",
			   f, op);
}

ncclResult_t nccl_redop_now(struct ncclComm *c, int *op)
{
	struct nccl_redop *r = find(c, *op);
	ncclRedOp_t now;
	ncclResult_t result;

	if (!r || !r->is_read)
		return ncclSuccess;
	r->in_calls++; /* tidy() is not to take it */
	result = create(&now, r->at, r->type, ncclScalarHostImmediate, c);
	r->in_calls--;
	if (result != ncclSuccess)
		return result;
	/* Nobody has it; it is kept for the next call with this value. */
	find(c, (int)now)->users--;
	*op = (int)now;
	return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar,
				      ncclDataType_t type,
				      ncclScalarResidence_t residence,
				      ncclComm_t comm)
{
	ncclResult_t result;

	if (!nccl_enter(comm))
		return nccl_handle_refuse(__func__, comm);
	if (!op || !scalar)
		result = nccl_refuse(ncclInvalidArgument, "%s: %s is NULL",
				     __func__, op ? "scalar" : "op");
	else if (!type_bytes((int)type))
		result = nccl_refuse(ncclInvalidArgument,
				     "%s: datatype %d: there is none", __func__,
				     (int)type);
	else if (residence != ncclScalarDevice &&
		 residence != ncclScalarHostImmediate)
		result = nccl_refuse(ncclInvalidArgument,
				     "%s: residence %d: neither device nor "
				     "host",
				     __func__, (int)residence);
	else
		result = create(op, scalar, (int)type, residence, comm);
	nccl_leave(comm);
	return result;
}
NCCL_ALIAS(ncclRedOpCreatePreMulSum);

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
	ncclResult_t result = ncclSuccess;
	struct nccl_redop *r;

	if (!nccl_enter_any(comm, NCCL_THERE))
		return nccl_handle_refuse(__func__, comm);
	r = find(comm, (int)op);
	if (r && r->users)
		r->users--;
	else
		result = nccl_refuse(ncclInvalidArgument,
				     "%s: op %d: no created operator of this "
				     "communicator",
				     __func__, (int)op);
	nccl_leave(comm);
	return result;
}
NCCL_ALIAS(ncclRedOpDestroy);
