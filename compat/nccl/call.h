/* SPDX-License-Identifier: BSD-3-Clause */
/* One operation, as it is called, or as a group keeps it until its end. */
#ifndef DICOMM_COMPAT_NCCL_CALL_H
#define DICOMM_COMPAT_NCCL_CALL_H

#include "compat/nccl/handle.h"

enum nccl_op {
	NCCL_ALLREDUCE,
	NCCL_BROADCAST,
	NCCL_REDUCE,
	NCCL_ALLGATHER,
	NCCL_REDUCE_SCATTER,
	NCCL_ALLTOALL,
	NCCL_GATHER,
	NCCL_SCATTER,
	NCCL_SEND,
	NCCL_RECV,
	NCCL_ALLTOALLV,
	NCCL_REDUCE_LOCAL,
	NCCL_PUT_SIGNAL,
	NCCL_SIGNAL,
	NCCL_WAIT_SIGNAL,
};

struct nccl_call {
	const char *f; /* who was called */
	enum nccl_op op;
	int type, redop, root; /* root: or the peer */
	const void *send;
	void *recv;
	size_t count;
	/* Of alltoallv: counts and displacements of send, then of recv */
	const size_t *sendcounts, *senddispls, *recvcounts, *recvdispls;
	/* Of what is one-sided; descs: count of them */
	dicomm_window_t win;
	size_t offset;
	int signal, ctx;
	unsigned flags;
	const dicomm_wait_signal_desc_t *descs;
	struct ncclComm *comm;
	cudaStream_t stream;
};

/* Inline, so that of a call in a program's path only its own case is left. */
static inline __attribute__((always_inline)) dicomm_result_t
nccl_call_run(const struct nccl_call *c, dicomm_comm_t comm)
{
	dicomm_datatype_t type = (dicomm_datatype_t)c->type;
	dicomm_redop_t op = (dicomm_redop_t)c->redop;

	switch (c->op) {
	case NCCL_ALLREDUCE:
		return dicomm_allreduce(c->send, c->recv, c->count, type, op,
					comm, c->stream);
	case NCCL_BROADCAST:
		return dicomm_broadcast(c->send, c->recv, c->count, type,
					c->root, comm, c->stream);
	case NCCL_REDUCE:
		return dicomm_reduce(c->send, c->recv, c->count, type, op,
				     c->root, comm, c->stream);
	case NCCL_ALLGATHER:
		return dicomm_allgather(c->send, c->recv, c->count, type, comm,
					c->stream);
	case NCCL_REDUCE_SCATTER:
		return dicomm_reduce_scatter(c->send, c->recv, c->count, type,
					     op, comm, c->stream);
	case NCCL_ALLTOALL:
		return dicomm_alltoall(c->send, c->recv, c->count, type, comm,
				       c->stream);
	case NCCL_GATHER:
		return dicomm_gather(c->send, c->recv, c->count, type, c->root,
				     comm, c->stream);
	case NCCL_SCATTER:
		return dicomm_scatter(c->send, c->recv, c->count, type, c->root,
				      comm, c->stream);
	case NCCL_SEND:
		return dicomm_send(c->send, c->count, type, c->root, comm,
				   c->stream);
	case NCCL_RECV:
		return dicomm_recv(c->recv, c->count, type, c->root, comm,
				   c->stream);
	case NCCL_ALLTOALLV:
		return dicomm_alltoallv(c->send, c->sendcounts, c->senddispls,
					c->recv, c->recvcounts, c->recvdispls,
					type, comm, c->stream);
	case NCCL_REDUCE_LOCAL:
		return dicomm_reduce_local(c->send, c->recv, c->count, type, op,
					   comm, c->stream);
	case NCCL_PUT_SIGNAL:
		return dicomm_put_signal(c->send, c->count, type, c->root,
					 c->win, c->offset, c->signal, c->ctx,
					 c->flags, comm, c->stream);
	case NCCL_SIGNAL:
		return dicomm_signal(c->root, c->signal, c->ctx, c->flags, comm,
				     c->stream);
	case NCCL_WAIT_SIGNAL:
		return dicomm_wait_signal((int)c->count, c->descs, comm,
					  c->stream);
	}
	return DICOMM_ERR_INTERNAL;
}

/* A created operator is in use by a call that waits in a group, or no longer.
 */
void nccl_redop_hold(struct ncclComm *c, int op, int change);
static inline bool nccl_redop_is_created(int op)
{
	return __builtin_expect(op > (int)ncclAvg, 0);
}

/* Is a created operator good for a call? Has refused it otherwise. */
ncclResult_t nccl_redop_check(const char *f, struct ncclComm *c, int op);
/* The library's for a call that is run now: a scalar "of the device" of a rank
 * of the host is read only then. */
ncclResult_t nccl_redop_now(struct ncclComm *c, int *op);
/* Of a communicator that ends. */
void nccl_redop_forget(struct ncclComm *c);
/* The same, before the library ends it: what it still has registered */
bool nccl_memory_is_left(const struct ncclComm *comm);
void nccl_memory_forget(struct ncclComm *comm);

#endif
