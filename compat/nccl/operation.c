/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations. Arguments are checked by the library, in the call. */
#include "compat/nccl/config.h"
#include "compat/nccl/group.h"
#include "compat/nccl/window.h"

/* Only a call that is kept has to lie in memory. */
static inline __attribute__((always_inline)) bool
keep(const struct nccl_call *call, ncclResult_t *result)
{
	const struct nccl_call copy = *call;

	return nccl_group_call(&copy, result);
}

/* Has entered, and leaves. */
static __attribute__((noinline)) ncclResult_t
run_created(const struct nccl_call *call)
{
	struct nccl_call now = *call;
	struct ncclComm *c = call->comm;
	dicomm_result_t status = DICOMM_SUCCESS;
	ncclResult_t result = nccl_redop_check(call->f, c, call->redop);

	if (result == ncclSuccess)
		result = nccl_redop_now(c, &now.redop);
	if (result == ncclSuccess)
		status = nccl_call_run(&now, c->comm);
	nccl_leave(c);
	return status == DICOMM_SUCCESS ? result
					: nccl_handle_failed(c, status);
}

static inline __attribute__((always_inline)) ncclResult_t
perform_created(const struct nccl_call *call)
{
	const struct nccl_call copy = *call;

	return run_created(&copy);
}

static inline __attribute__((always_inline)) ncclResult_t
perform(const struct nccl_call *call)
{
	struct ncclComm *c = call->comm;
	dicomm_result_t status;
	ncclResult_t result;

	if (nccl_group_any() && keep(call, &result))
		return result;
	if (__builtin_expect(!nccl_enter(c), 0))
		return nccl_handle_refuse(call->f, c);
	if (nccl_redop_is_created(call->redop))
		return perform_created(call);
	status = nccl_call_run(
		call, atomic_load_explicit(&c->comm, memory_order_relaxed));
	nccl_leave(c);
	if (__builtin_expect(status == DICOMM_SUCCESS, 1))
		return ncclSuccess;
	return nccl_handle_failed(c, status);
}

/* A configuration that cannot be followed is a call that is refused. */
static ncclResult_t perform_as(const struct nccl_call *call, const void *config)
{
	ncclResult_t result = nccl_config_check_call(call->f, config);

	if (result == ncclSuccess)
		return perform(call);
	return nccl_refused(result);
}

#define CALL(kind, ...)                        \
	(&(struct nccl_call){.f = __func__,    \
			     .op = kind,       \
			     .comm = comm,     \
			     .stream = stream, \
			     __VA_ARGS__})

#define ALLREDUCE                                                        \
	CALL(NCCL_ALLREDUCE, .send = send, .recv = recv, .count = count, \
	     .type = (int)type, .redop = (int)op)

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count,
			   ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
			   cudaStream_t stream)
{
	return perform(ALLREDUCE);
}
NCCL_ALIAS(ncclAllReduce);

ncclResult_t ncclAllReduceConfig(const void *send, void *recv, size_t count,
				 ncclDataType_t type, ncclRedOp_t op,
				 ncclComm_t comm, cudaStream_t stream,
				 const ncclCollConfig_t *config)
{
	return perform_as(ALLREDUCE, config);
}
NCCL_ALIAS(ncclAllReduceConfig);

#define BROADCAST                                                        \
	CALL(NCCL_BROADCAST, .send = send, .recv = recv, .count = count, \
	     .type = (int)type, .root = root)

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count,
			   ncclDataType_t type, int root, ncclComm_t comm,
			   cudaStream_t stream)
{
	return perform(BROADCAST);
}
NCCL_ALIAS(ncclBroadcast);

ncclResult_t ncclBroadcastConfig(const void *send, void *recv, size_t count,
				 ncclDataType_t type, int root, ncclComm_t comm,
				 cudaStream_t stream,
				 const ncclCollConfig_t *config)
{
	return perform_as(BROADCAST, config);
}
NCCL_ALIAS(ncclBroadcastConfig);

ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t type, int root,
		       ncclComm_t comm, cudaStream_t stream)
{
	return perform(CALL(NCCL_BROADCAST, .send = buff, .recv = buff,
			    .count = count, .type = (int)type, .root = root));
}
NCCL_ALIAS(ncclBcast);

#define REDUCE                                                        \
	CALL(NCCL_REDUCE, .send = send, .recv = recv, .count = count, \
	     .type = (int)type, .redop = (int)op, .root = root)

ncclResult_t ncclReduce(const void *send, void *recv, size_t count,
			ncclDataType_t type, ncclRedOp_t op, int root,
			ncclComm_t comm, cudaStream_t stream)
{
	return perform(REDUCE);
}
NCCL_ALIAS(ncclReduce);

ncclResult_t ncclReduceConfig(const void *send, void *recv, size_t count,
			      ncclDataType_t type, ncclRedOp_t op, int root,
			      ncclComm_t comm, cudaStream_t stream,
			      const ncclCollConfig_t *config)
{
	return perform_as(REDUCE, config);
}
NCCL_ALIAS(ncclReduceConfig);

#define ALLGATHER                                                            \
	CALL(NCCL_ALLGATHER, .send = send, .recv = recv, .count = sendcount, \
	     .type = (int)type)

ncclResult_t ncclAllGather(const void *send, void *recv, size_t sendcount,
			   ncclDataType_t type, ncclComm_t comm,
			   cudaStream_t stream)
{
	return perform(ALLGATHER);
}
NCCL_ALIAS(ncclAllGather);

ncclResult_t ncclAllGatherConfig(const void *send, void *recv, size_t sendcount,
				 ncclDataType_t type, ncclComm_t comm,
				 cudaStream_t stream,
				 const ncclCollConfig_t *config)
{
	return perform_as(ALLGATHER, config);
}
NCCL_ALIAS(ncclAllGatherConfig);

#define REDUCE_SCATTER                                        \
	CALL(NCCL_REDUCE_SCATTER, .send = send, .recv = recv, \
	     .count = recvcount, .type = (int)type, .redop = (int)op)

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t recvcount,
			       ncclDataType_t type, ncclRedOp_t op,
			       ncclComm_t comm, cudaStream_t stream)
{
	return perform(REDUCE_SCATTER);
}
NCCL_ALIAS(ncclReduceScatter);

ncclResult_t ncclReduceScatterConfig(const void *send, void *recv,
				     size_t recvcount, ncclDataType_t type,
				     ncclRedOp_t op, ncclComm_t comm,
				     cudaStream_t stream,
				     const ncclCollConfig_t *config)
{
	return perform_as(REDUCE_SCATTER, config);
}
NCCL_ALIAS(ncclReduceScatterConfig);

#define ALLTOALL                                                        \
	CALL(NCCL_ALLTOALL, .send = send, .recv = recv, .count = count, \
	     .type = (int)type)

ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count,
			  ncclDataType_t type, ncclComm_t comm,
			  cudaStream_t stream)
{
	return perform(ALLTOALL);
}
NCCL_ALIAS(ncclAlltoAll);

/* As RCCL has long called it */
ncclResult_t ncclAllToAll(const void *send, void *recv, size_t count,
			  ncclDataType_t type, ncclComm_t comm,
			  cudaStream_t stream)
{
	return perform(ALLTOALL);
}
NCCL_ALIAS(ncclAllToAll);

ncclResult_t ncclAlltoAllConfig(const void *send, void *recv, size_t count,
				ncclDataType_t type, ncclComm_t comm,
				cudaStream_t stream,
				const ncclCollConfig_t *config)
{
	return perform_as(ALLTOALL, config);
}
NCCL_ALIAS(ncclAlltoAllConfig);

#define GATHER                                                        \
	CALL(NCCL_GATHER, .send = send, .recv = recv, .count = count, \
	     .type = (int)type, .root = root)

ncclResult_t ncclGather(const void *send, void *recv, size_t count,
			ncclDataType_t type, int root, ncclComm_t comm,
			cudaStream_t stream)
{
	return perform(GATHER);
}
NCCL_ALIAS(ncclGather);

ncclResult_t ncclGatherConfig(const void *send, void *recv, size_t count,
			      ncclDataType_t type, int root, ncclComm_t comm,
			      cudaStream_t stream,
			      const ncclCollConfig_t *config)
{
	return perform_as(GATHER, config);
}
NCCL_ALIAS(ncclGatherConfig);

#define SCATTER                                                        \
	CALL(NCCL_SCATTER, .send = send, .recv = recv, .count = count, \
	     .type = (int)type, .root = root)

ncclResult_t ncclScatter(const void *send, void *recv, size_t count,
			 ncclDataType_t type, int root, ncclComm_t comm,
			 cudaStream_t stream)
{
	return perform(SCATTER);
}
NCCL_ALIAS(ncclScatter);

ncclResult_t ncclScatterConfig(const void *send, void *recv, size_t count,
			       ncclDataType_t type, int root, ncclComm_t comm,
			       cudaStream_t stream,
			       const ncclCollConfig_t *config)
{
	return perform_as(SCATTER, config);
}
NCCL_ALIAS(ncclScatterConfig);

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type,
		      int peer, ncclComm_t comm, cudaStream_t stream)
{
	return perform(CALL(NCCL_SEND, .send = send, .count = count,
			    .type = (int)type, .root = peer));
}
NCCL_ALIAS(ncclSend);

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer,
		      ncclComm_t comm, cudaStream_t stream)
{
	return perform(CALL(NCCL_RECV, .recv = recv, .count = count,
			    .type = (int)type, .root = peer));
}
NCCL_ALIAS(ncclRecv);

#define ALLTOALLV                                                           \
	CALL(NCCL_ALLTOALLV, .send = send, .recv = recv, .type = (int)type, \
	     .sendcounts = sendcounts, .senddispls = senddispls,            \
	     .recvcounts = recvcounts, .recvdispls = recvdispls)

ncclResult_t ncclAlltoAllv(const void *send, const size_t *sendcounts,
			   const size_t *senddispls, void *recv,
			   const size_t *recvcounts, const size_t *recvdispls,
			   ncclDataType_t type, ncclComm_t comm,
			   cudaStream_t stream)
{
	return perform(ALLTOALLV);
}
NCCL_ALIAS(ncclAlltoAllv);

ncclResult_t ncclAllToAllv(const void *send, const size_t *sendcounts,
			   const size_t *senddispls, void *recv,
			   const size_t *recvcounts, const size_t *recvdispls,
			   ncclDataType_t type, ncclComm_t comm,
			   cudaStream_t stream)
{
	return perform(ALLTOALLV);
}
NCCL_ALIAS(ncclAllToAllv);

/* The bias is of this rank alone; its place behind the sum is that of the next
 * operation of the communicator. */
ncclResult_t ncclAllReduceWithBias(const void *send, void *recv, size_t count,
				   ncclDataType_t type, ncclRedOp_t op,
				   ncclComm_t comm, cudaStream_t stream,
				   const void *acc)
{
	ncclResult_t result;

	if ((int)op > (int)ncclMin || (int)op < 0) {
		result = nccl_refuse(ncclInvalidUsage,
				     "%s: op %d: a bias is added by sum, prod, "
				     "max or min only",
				     __func__, (int)op);
		return nccl_refused(result);
	}
	if (!acc && count) {
		result = nccl_refuse(ncclInvalidArgument, "%s: acc is NULL",
				     __func__);
		return nccl_refused(result);
	}
	result = perform(ALLREDUCE);
	if (result != ncclSuccess)
		return result;
	return perform(CALL(NCCL_REDUCE_LOCAL, .send = acc, .recv = recv,
			    .count = count, .type = (int)type,
			    .redop = (int)op));
}
NCCL_ALIAS(ncclAllReduceWithBias);

ncclResult_t ncclPutSignal(const void *local, size_t count, ncclDataType_t type,
			   int peer, ncclWindow_t win, size_t offset,
			   int signal, int ctx, unsigned int flags,
			   ncclComm_t comm, cudaStream_t stream)
{
	dicomm_window_t found;
	ncclResult_t result;

	if (!nccl_is_handle(comm))
		return nccl_refused(nccl_handle_refuse(__func__, comm));
	/* The library takes a signal below 0 for none. */
	if (signal < 0)
		return nccl_refused(nccl_refuse(ncclInvalidArgument,
						"%s: sigIdx %d: negative",
						__func__, signal));
	found = nccl_window_find(__func__, comm, win, &result);
	if (!found)
		return nccl_refused(result);
	return perform(CALL(NCCL_PUT_SIGNAL, .send = local, .count = count,
			    .type = (int)type, .root = peer, .win = found,
			    .offset = offset, .signal = signal, .ctx = ctx,
			    .flags = flags));
}
NCCL_ALIAS(ncclPutSignal);

ncclResult_t ncclSignal(int peer, int signal, int ctx, unsigned int flags,
			ncclComm_t comm, cudaStream_t stream)
{
	return perform(CALL(NCCL_SIGNAL, .root = peer, .signal = signal,
			    .ctx = ctx, .flags = flags));
}
NCCL_ALIAS(ncclSignal);

_Static_assert(sizeof(ncclWaitSignalDesc_t) ==
			       sizeof(dicomm_wait_signal_desc_t) &&
		       offsetof(ncclWaitSignalDesc_t, opCnt) ==
			       offsetof(dicomm_wait_signal_desc_t, count) &&
		       offsetof(ncclWaitSignalDesc_t, peer) ==
			       offsetof(dicomm_wait_signal_desc_t, peer) &&
		       offsetof(ncclWaitSignalDesc_t, sigIdx) ==
			       offsetof(dicomm_wait_signal_desc_t, signal) &&
		       offsetof(ncclWaitSignalDesc_t, ctx) ==
			       offsetof(dicomm_wait_signal_desc_t, context),
	       "handed on as they are");

ncclResult_t ncclWaitSignal(int n, ncclWaitSignalDesc_t *signals,
			    ncclComm_t comm, cudaStream_t stream)
{
	if (n < 0)
		return nccl_refused(nccl_refuse(ncclInvalidArgument,
						"%s: nDesc %d: negative",
						__func__, n));
	return perform(
		CALL(NCCL_WAIT_SIGNAL, .count = (size_t)n,
		     .descs = (const dicomm_wait_signal_desc_t *)(const void *)
			     signals));
}
NCCL_ALIAS(ncclWaitSignal);
