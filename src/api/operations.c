/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public operations. Their arguments are checked here and nowhere else. A
 * refused call has no effect.
 */
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/base/type.h"
#include "src/comm/setup.h"
#include "src/core/host_access.h"
#include "src/device/device.h"
#include "src/device/neighbour.h"
#include "src/engine/fast_path.h"
#include "src/stream/submit.h"

#define BAD(...) FAIL(DICOMM_ERR_INVALID_ARGUMENT, __VA_ARGS__)

static dicomm_result_t check_type(const char *f, dicomm_datatype_t type)
{
	if (__builtin_expect(!type_valid(type), 0))
		return BAD("%s: type %d: no such datatype", f, (int)type);
	return DICOMM_SUCCESS;
}

/* `r`: the first rank to look at. */
static dicomm_result_t lacking(const char *f, const struct dicomm_comm *comm,
			       dicomm_datatype_t type, int r)
{
	while (!(comm->members[r].lacks >> type & 1))
		r++;
	return FAIL(DICOMM_ERR_UNSUPPORTED,
		    "%s: rank %d (%s) has no kernels for type %s", f, r,
		    comm->members[r].device, type_name(type));
}

/* Also copies the scalar of a created operator. */
static dicomm_result_t check_op(const char *f, struct dicomm_comm *comm,
				dicomm_datatype_t type, dicomm_redop_t op,
				struct call *call)
{
	bool local = call->coll == COLL_REDUCE_LOCAL;
	uint64_t lacks = local ? comm->members[comm->rank].lacks : comm->lacks;
	const struct created_op *c;

	if (__builtin_expect(lacks >> type & 1, 0))
		return lacking(f, comm, type, local ? comm->rank : 0);
	if (local && (op == DICOMM_AVG || comm_created_op(comm, op)))
		return BAD("%s: op %s: it is of the elements of ranks", f,
			   op == DICOMM_AVG ? "avg" : "premulsum");
	if (op_valid(op)) {
		if (op >= DICOMM_BAND && type_is_float(type))
			return BAD("%s: op %s: not defined for type %s", f,
				   op_name(op), type_name(type));
		return DICOMM_SUCCESS;
	}
	c = comm_created_op(comm, op);
	if (!c)
		return BAD("%s: op %d: no such operator of this communicator",
			   f, (int)op);
	if (c->type != type)
		return BAD("%s: type %s: op %d was created for type %s", f,
			   type_name(type), (int)op, type_name(c->type));
	memcpy(call->scalar, c->scalar, sizeof(call->scalar));
	call->scalar_at = c->scalar_at;
	return DICOMM_SUCCESS;
}

static dicomm_result_t check_rank(const char *f, const char *name,
				  const struct dicomm_comm *comm, int rank)
{
	if (__builtin_expect(rank < 0 || rank >= comm->ranks, 0))
		return BAD("%s: %s %d: not in 0 .. %d", f, name, rank,
			   comm->ranks - 1);
	return DICOMM_SUCCESS;
}

/* A buffer of blocks * count elements */
static dicomm_result_t check_buffer(const char *f, const char *name,
				    const void *at, size_t blocks, size_t count,
				    dicomm_datatype_t type)
{
	size_t bytes;

	if (__builtin_expect(__builtin_mul_overflow(count, blocks, &bytes) ||
				     __builtin_mul_overflow(
					     bytes, type_bytes(type), &bytes) ||
				     bytes > PTRDIFF_MAX,
			     0))
		return BAD("%s: count %zu: more than can be addressed", f,
			   count);
	if (__builtin_expect(!at && bytes, 0))
		return BAD("%s: %s is NULL, count is %zu", f, name, count);
	return DICOMM_SUCCESS;
}

/* Can the rank's device use the buffer, and the neighbours that must not stage?
 */
static dicomm_result_t check_reach(const char *f,
				   const struct dicomm_comm *comm,
				   const char *name, const void *at,
				   size_t bytes)
{
	if (!bytes)
		return DICOMM_SUCCESS;
	TRY(device_check(comm, f, name, at));
	return comm->only_shared && !comm->dev
		       ? neighbour_check(comm, f, name, at, bytes)
		       : DICOMM_SUCCESS;
}

static dicomm_result_t check_memory(const char *f,
				    const struct dicomm_comm *comm,
				    const void *send, size_t sent, void *recv,
				    size_t received)
{
	TRY(check_reach(f, comm, "send", send, sent));
	return check_reach(f, comm, "recv", recv, received);
}

/* The same without the neighbours */
static dicomm_result_t check_own(const char *f, const struct dicomm_comm *comm,
				 const void *send, void *recv, size_t bytes)
{
	if (!bytes)
		return DICOMM_SUCCESS;
	TRY(device_check(comm, f, "send", send));
	return device_check(comm, f, "recv", recv);
}

/* Check that two buffers are apart, or overlap as in-place calls do. */
static dicomm_result_t check_apart(const char *f, const void *send,
				   size_t send_bytes, const void *recv,
				   size_t recv_bytes, bool in_place)
{
	uintptr_t a = (uintptr_t)send, b = (uintptr_t)recv;

	if (__builtin_expect(in_place || !send_bytes || !recv_bytes ||
				     a + send_bytes <= b || b + recv_bytes <= a,
			     1))
		return DICOMM_SUCCESS;
	return BAD("%s: send %p and recv %p overlap, and not as a call in "
		   "place may, if it has that form",
		   f, send, recv);
}

/* For a device, its runtime checks the stream when the call is queued. */
static dicomm_result_t check_stream(const char *f,
				    const struct dicomm_comm *comm,
				    dicomm_stream_t stream)
{
	if (__builtin_expect(stream && !comm->dev && !stream_valid(stream), 0))
		return stream_refuse(stream, f);
	return DICOMM_SUCCESS;
}

/* Log a refusal to the communicator's log_fn. The owner of a broken one was
 * told before. */
static dicomm_result_t heard(const struct dicomm_comm *comm,
			     dicomm_result_t status)
{
	if (__builtin_expect(status == DICOMM_SUCCESS, 1) || !comm ||
	    comm->magic != COMM_MAGIC || fault_is(comm))
		return status;
	comm_listen(comm);
	log_repeat();
	comm_listen(NULL);
	return status;
}

/* Run a repeated blocking call with few checks; see prepared_quick(). False:
 * nothing has happened, take the slow path. */
static inline __attribute__((always_inline)) bool
repeated(enum coll coll, const void *send, void *recv, size_t count,
	 dicomm_datatype_t type, dicomm_redop_t op, int root,
	 struct dicomm_comm *comm, dicomm_stream_t stream,
	 dicomm_result_t *status)
{
	const struct prepared *prep;

	if (!comm_usable(comm) || stream || group_open() ||
	    atomic_load_explicit(&comm->queued, memory_order_acquire))
		return false;
	/* A prepared call may outlive the operator; see redop.c. */
	if (__builtin_expect(op >= 0x100, 0) && !comm_created_op(comm, op))
		return false;
	prep = prepared_quick(comm, coll, send, recv, count, type, op, root);
	return prep &&
	       host_access_quick(send, prep->send_bytes, recv,
				 prep->recv_bytes) &&
	       fast_path_run(comm, prep, send, recv, status);
}

static inline dicomm_result_t
uniform_checked(const char *f, enum coll coll, const void *send, void *recv,
		size_t count, dicomm_datatype_t type, dicomm_redop_t op,
		int root, struct dicomm_comm *comm, dicomm_stream_t stream)
{
	struct call call = {.coll = coll,
			    .type = type,
			    .op = op,
			    .root = root,
			    .count = count,
			    .send = send,
			    .recv = recv};
	size_t send_blocks, recv_blocks, bytes;
	uint32_t sb, rb;

	TRY(comm_check(comm, f));
	TRY(check_type(f, type));
	if (coll_reduces(coll))
		TRY(check_op(f, comm, type, op, &call));
	if (coll_rooted(coll))
		TRY(check_rank(f, "root", comm, root));
	TRY(check_stream(f, comm, stream));
	coll_layout(coll, comm->rank, comm->ranks, root, &sb, &rb);
	send_blocks = sb;
	recv_blocks = rb;
	TRY(check_buffer(f, "send", send, send_blocks, count, type));
	TRY(check_buffer(f, "recv", recv, recv_blocks, count, type));
	bytes = count * type_bytes(type);
	TRY(check_apart(f, send, send_blocks * bytes, recv, recv_blocks * bytes,
			call_in_place(&call, comm->rank)));
	if (coll == COLL_REDUCE_LOCAL)
		TRY(check_own(f, comm, send, recv, bytes));
	else
		TRY(check_memory(f, comm, send, send_blocks * bytes, recv,
				 recv_blocks * bytes));
	return group_call(comm, &call, NULL, stream);
}

/* The operations with one count. */
static inline __attribute__((always_inline)) dicomm_result_t
uniform(const char *f, enum coll coll, const void *send, void *recv,
	size_t count, dicomm_datatype_t type, dicomm_redop_t op, int root,
	struct dicomm_comm *comm, dicomm_stream_t stream)
{
	dicomm_result_t status;

	if (__builtin_expect(repeated(coll, send, recv, count, type, op, root,
				      comm, stream, &status),
			     1))
		return status;
	return heard(comm, uniform_checked(f, coll, send, recv, count, type, op,
					   root, comm, stream));
}

dicomm_result_t dicomm_allreduce(const void *send, void *recv, size_t count,
				 dicomm_datatype_t type, dicomm_redop_t op,
				 dicomm_comm_t comm, dicomm_stream_t stream)
{
	return uniform("allreduce", COLL_ALLREDUCE, send, recv, count, type, op,
		       -1, comm, stream);
}

dicomm_result_t dicomm_reduce(const void *send, void *recv, size_t count,
			      dicomm_datatype_t type, dicomm_redop_t op,
			      int root, dicomm_comm_t comm,
			      dicomm_stream_t stream)
{
	return uniform("reduce", COLL_REDUCE, send, recv, count, type, op, root,
		       comm, stream);
}

dicomm_result_t dicomm_reduce_local(const void *send, void *recv, size_t count,
				    dicomm_datatype_t type, dicomm_redop_t op,
				    dicomm_comm_t comm, dicomm_stream_t stream)
{
	return uniform("reduce_local", COLL_REDUCE_LOCAL, send, recv, count,
		       type, op, -1, comm, stream);
}

dicomm_result_t dicomm_broadcast(const void *send, void *recv, size_t count,
				 dicomm_datatype_t type, int root,
				 dicomm_comm_t comm, dicomm_stream_t stream)
{
	return uniform("broadcast", COLL_BROADCAST, send, recv, count, type,
		       DICOMM_SUM, root, comm, stream);
}

dicomm_result_t dicomm_reduce_scatter(const void *send, void *recv,
				      size_t recvcount, dicomm_datatype_t type,
				      dicomm_redop_t op, dicomm_comm_t comm,
				      dicomm_stream_t stream)
{
	return uniform("reduce_scatter", COLL_REDUCE_SCATTER, send, recv,
		       recvcount, type, op, -1, comm, stream);
}

dicomm_result_t dicomm_allgather(const void *send, void *recv, size_t sendcount,
				 dicomm_datatype_t type, dicomm_comm_t comm,
				 dicomm_stream_t stream)
{
	return uniform("allgather", COLL_ALLGATHER, send, recv, sendcount, type,
		       DICOMM_SUM, -1, comm, stream);
}

dicomm_result_t dicomm_alltoall(const void *send, void *recv, size_t count,
				dicomm_datatype_t type, dicomm_comm_t comm,
				dicomm_stream_t stream)
{
	return uniform("alltoall", COLL_ALLTOALL, send, recv, count, type,
		       DICOMM_SUM, -1, comm, stream);
}

dicomm_result_t dicomm_gather(const void *send, void *recv, size_t count,
			      dicomm_datatype_t type, int root,
			      dicomm_comm_t comm, dicomm_stream_t stream)
{
	return uniform("gather", COLL_GATHER, send, recv, count, type,
		       DICOMM_SUM, root, comm, stream);
}

dicomm_result_t dicomm_scatter(const void *send, void *recv, size_t count,
			       dicomm_datatype_t type, int root,
			       dicomm_comm_t comm, dicomm_stream_t stream)
{
	return uniform("scatter", COLL_SCATTER, send, recv, count, type,
		       DICOMM_SUM, root, comm, stream);
}

/* Messages with tags are in host memory. */
static dicomm_result_t check_tag(const char *f, const struct dicomm_comm *comm,
				 int peer, int tag)
{
	int r = comm->dev || peer < 0 ? comm->rank : peer;

	if (tag < 0)
		return BAD("%s: tag %d: negative", f, tag);
	if (!tag || !strcmp(comm->members[r].device, "host"))
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_UNSUPPORTED,
		    "%s: tag %d: rank %d is on %s, and tags are between host "
		    "ranks only",
		    f, tag, r, comm->members[r].device);
}

static dicomm_result_t send_checked(const char *f, const struct call *call,
				    dicomm_comm_t comm, dicomm_stream_t stream)
{
	TRY(comm_check(comm, f));
	TRY(check_type(f, call->type));
	TRY(check_rank(f, "peer", comm, call->root));
	TRY(check_tag(f, comm, call->root, call->tag));
	TRY(check_stream(f, comm, stream));
	TRY(check_buffer(f, "send", call->send, 1, call->count, call->type));
	TRY(check_memory(f, comm, call->send,
			 call->count * type_bytes(call->type), NULL, 0));
	return group_call(comm, call, NULL, stream);
}

dicomm_result_t dicomm_send(const void *send, size_t count,
			    dicomm_datatype_t type, int peer,
			    dicomm_comm_t comm, dicomm_stream_t stream)
{
	dicomm_result_t status;

	if (__builtin_expect(repeated(COLL_SEND, send, NULL, count, type,
				      DICOMM_SUM, peer, comm, stream, &status),
			     1))
		return status;
	return heard(comm, send_checked("send",
					&(struct call){.coll = COLL_SEND,
						       .type = type,
						       .root = peer,
						       .count = count,
						       .send = send},
					comm, stream));
}

static dicomm_result_t check_source(const char *f, struct dicomm_comm *comm,
				    const struct call *call, bool may_be_any)
{
	if (!may_be_any || call->root != DICOMM_ANY_SOURCE)
		return check_rank(f, "peer", comm, call->root);
	if (!call->count && !call->tag)
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "%s: count 0 from any source: an empty message "
			    "with tag 0 is never sent, so it has no source to "
			    "find",
			    f);
	return DICOMM_SUCCESS;
}

static dicomm_result_t recv_checked(const char *f, const struct call *call,
				    bool may_be_any, dicomm_comm_t comm,
				    dicomm_stream_t stream)
{
	TRY(comm_check(comm, f));
	TRY(check_type(f, call->type));
	TRY(check_source(f, comm, call, may_be_any));
	TRY(check_tag(f, comm, call->root, call->tag));
	TRY(check_stream(f, comm, stream));
	TRY(check_buffer(f, "recv", call->recv, 1, call->count, call->type));
	TRY(check_memory(f, comm, NULL, 0, call->recv,
			 call->count * type_bytes(call->type)));
	return group_call(comm, call, NULL, stream);
}

dicomm_result_t dicomm_recv(void *recv, size_t count, dicomm_datatype_t type,
			    int peer, dicomm_comm_t comm,
			    dicomm_stream_t stream)
{
	dicomm_result_t status;

	if (__builtin_expect(repeated(COLL_RECV, NULL, recv, count, type,
				      DICOMM_SUM, peer, comm, stream, &status),
			     1))
		return status;
	return heard(comm, recv_checked("recv",
					&(struct call){.coll = COLL_RECV,
						       .type = type,
						       .root = peer,
						       .count = count,
						       .recv = recv},
					false, comm, stream));
}

dicomm_result_t dicomm_send_tag(const void *send, size_t count,
				dicomm_datatype_t type, int peer, int tag,
				dicomm_comm_t comm, dicomm_stream_t stream)
{
	dicomm_result_t status;

	if (!tag && repeated(COLL_SEND, send, NULL, count, type, DICOMM_SUM,
			     peer, comm, stream, &status))
		return status;
	return heard(comm, send_checked("send_tag",
					&(struct call){.coll = COLL_SEND,
						       .type = type,
						       .root = peer,
						       .count = count,
						       .tag = tag,
						       .send = send},
					comm, stream));
}

dicomm_result_t dicomm_recv_tag(void *recv, size_t count,
				dicomm_datatype_t type, int peer, int tag,
				dicomm_comm_t comm, dicomm_stream_t stream,
				dicomm_status_t *status)
{
	dicomm_result_t result;

	if (!tag && repeated(COLL_RECV, NULL, recv, count, type, DICOMM_SUM,
			     peer, comm, stream, &result)) {
		if (status && result == DICOMM_SUCCESS)
			*status = (dicomm_status_t){.source = peer,
						    .count = count};
		return result;
	}
	return heard(comm, recv_checked("recv_tag",
					&(struct call){.coll = COLL_RECV,
						       .type = type,
						       .root = peer,
						       .count = count,
						       .tag = tag,
						       .status = status,
						       .recv = recv},
					true, comm, stream));
}

static dicomm_result_t barrier_checked(dicomm_comm_t comm,
				       dicomm_stream_t stream)
{
	struct call call = {
		.coll = COLL_BARRIER, .type = DICOMM_INT8, .root = -1};

	TRY(comm_check(comm, "barrier"));
	TRY(check_stream("barrier", comm, stream));
	return group_call(comm, &call, NULL, stream);
}

dicomm_result_t dicomm_barrier(dicomm_comm_t comm, dicomm_stream_t stream)
{
	dicomm_result_t status;

	if (__builtin_expect(repeated(COLL_BARRIER, NULL, NULL, 0, DICOMM_INT8,
				      DICOMM_SUM, -1, comm, stream, &status),
			     1))
		return status;
	return heard(comm, barrier_checked(comm, stream));
}

/* ---- counts for each rank ---- */

static dicomm_result_t check_array(const char *f, const char *name,
				   const size_t *array)
{
	if (!array)
		return BAD("%s: %s is NULL", f, name);
	return DICOMM_SUCCESS;
}

/* The blocks of one buffer, and the range from the first to the last of them */
struct blocks {
	const uint8_t *at;
	int n;
	const size_t *counts, *displs;
	size_t first, end;
};

/* Check each block, and find the range. */
static dicomm_result_t check_blocks(const char *f, const char *name,
				    struct blocks *b, dicomm_datatype_t type)
{
	for (int r = 0; r < b->n; r++) {
		size_t end;

		if (!b->counts[r])
			continue;
		if (__builtin_add_overflow(b->counts[r], b->displs[r], &end))
			return BAD("%s: %s of rank %d: count %zu at %zu: more "
				   "than can be addressed",
				   f, name, r, b->counts[r], b->displs[r]);
		TRY(check_buffer(f, name, b->at, 1, end, type));
		if (!b->end || b->displs[r] < b->first)
			b->first = b->displs[r];
		if (end > b->end)
			b->end = end;
	}
	return DICOMM_SUCCESS;
}

/* Two buffers of blocks may lie in one memory, even block by block, as long as
 * no blocks overlap. */
static dicomm_result_t check_blocks_apart(const char *f, const struct blocks *s,
					  const struct blocks *r, size_t bytes,
					  bool in_place)
{
	if (in_place || !s->end || !r->end ||
	    s->at + s->end * bytes <= r->at + r->first * bytes ||
	    r->at + r->end * bytes <= s->at + s->first * bytes)
		return DICOMM_SUCCESS;
	for (int i = 0; i < s->n; i++)
		for (int j = 0; j < r->n; j++)
			TRY(check_apart(f, s->at + s->displs[i] * bytes,
					s->counts[i] * bytes,
					r->at + r->displs[j] * bytes,
					r->counts[j] * bytes, false));
	return DICOMM_SUCCESS;
}

/* Memory for n arrays with an entry for each rank */
static dicomm_result_t arrays(const char *f, const struct dicomm_comm *comm,
			      size_t n, size_t **out)
{
	*out = calloc(n * (size_t)comm->ranks + 2, sizeof(**out));
	if (!*out)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "%s: no memory for the counts of %d ranks", f,
			    comm->ranks);
	return DICOMM_SUCCESS;
}

static const size_t *put_array(size_t **at, const size_t *from, int n)
{
	size_t *to = *at;

	memcpy(to, from, (size_t)n * sizeof(*to));
	*at += n;
	return to;
}

static dicomm_result_t alltoallv_checked(
	const void *send, const size_t *sendcounts, const size_t *senddispls,
	void *recv, const size_t *recvcounts, const size_t *recvdispls,
	dicomm_datatype_t type, dicomm_comm_t comm, dicomm_stream_t stream)
{
	static const char f[] = "alltoallv";
	struct call call = {.coll = COLL_ALLTOALLV,
			    .type = type,
			    .root = -1,
			    .send = send,
			    .recv = recv};
	struct blocks sent, received;
	size_t *own, *at, bytes;
	int n;

	TRY(comm_check(comm, f));
	TRY(check_type(f, type));
	TRY(check_stream(f, comm, stream));
	TRY(check_array(f, "sendcounts", sendcounts));
	TRY(check_array(f, "senddispls", senddispls));
	TRY(check_array(f, "recvcounts", recvcounts));
	TRY(check_array(f, "recvdispls", recvdispls));
	n = comm->ranks;
	sent = (struct blocks){send, n, sendcounts, senddispls, 0, 0};
	received = (struct blocks){recv, n, recvcounts, recvdispls, 0, 0};
	TRY(check_blocks(f, "send", &sent, type));
	TRY(check_blocks(f, "recv", &received, type));
	bytes = type_bytes(type);
	TRY(check_blocks_apart(f, &sent, &received, bytes, false));
	TRY(check_memory(f, comm, send, sent.end * bytes, recv,
			 received.end * bytes));
	if (sendcounts[comm->rank] != recvcounts[comm->rank])
		return BAD("%s: rank %d sends itself %zu elements, but "
			   "receives %zu from itself",
			   f, comm->rank, sendcounts[comm->rank],
			   recvcounts[comm->rank]);
	TRY(arrays(f, comm, 4, &own));
	at = own;
	call.send_counts = put_array(&at, sendcounts, n);
	call.send_displs = put_array(&at, senddispls, n);
	call.recv_counts = put_array(&at, recvcounts, n);
	call.recv_displs = put_array(&at, recvdispls, n);
	return group_call(comm, &call, own, stream);
}

dicomm_result_t dicomm_alltoallv(const void *send, const size_t *sendcounts,
				 const size_t *senddispls, void *recv,
				 const size_t *recvcounts,
				 const size_t *recvdispls,
				 dicomm_datatype_t type, dicomm_comm_t comm,
				 dicomm_stream_t stream)
{
	return heard(comm, alltoallv_checked(send, sendcounts, senddispls, recv,
					     recvcounts, recvdispls, type, comm,
					     stream));
}

static dicomm_result_t
allgatherv_checked(const void *send, void *recv, const size_t *recvcounts,
		   const size_t *recvdispls, dicomm_datatype_t type,
		   dicomm_comm_t comm, dicomm_stream_t stream)
{
	static const char f[] = "allgatherv";
	struct call call = {.coll = COLL_ALLGATHERV,
			    .type = type,
			    .root = -1,
			    .send = send,
			    .recv = recv};
	size_t *own, *at, mine, bytes;
	struct blocks sent, received;
	int n;

	TRY(comm_check(comm, f));
	TRY(check_type(f, type));
	TRY(check_stream(f, comm, stream));
	TRY(check_array(f, "recvcounts", recvcounts));
	TRY(check_array(f, "recvdispls", recvdispls));
	n = comm->ranks;
	mine = recvcounts[comm->rank];
	TRY(check_buffer(f, "send", send, 1, mine, type));
	received = (struct blocks){recv, n, recvcounts, recvdispls, 0, 0};
	TRY(check_blocks(f, "recv", &received, type));
	TRY(check_memory(f, comm, send, mine * type_bytes(type), recv,
			 received.end * type_bytes(type)));
	TRY(arrays(f, comm, 2, &own));
	at = own;
	call.recv_counts = put_array(&at, recvcounts, n);
	call.recv_displs = put_array(&at, recvdispls, n);
	call.counts = call.recv_counts;
	call.send_counts = put_array(&at, &mine, 1);
	call.send_displs = at; /* 0 */
	bytes = type_bytes(type);
	sent = (struct blocks){send, 1,   call.send_counts, call.send_displs,
			       0,    mine};
	if (check_blocks_apart(f, &sent, &received, bytes,
			       call_in_place(&call, comm->rank)) !=
	    DICOMM_SUCCESS) {
		free(own);
		return DICOMM_ERR_INVALID_ARGUMENT;
	}
	return group_call(comm, &call, own, stream);
}

dicomm_result_t dicomm_allgatherv(const void *send, void *recv,
				  const size_t *recvcounts,
				  const size_t *recvdispls,
				  dicomm_datatype_t type, dicomm_comm_t comm,
				  dicomm_stream_t stream)
{
	return heard(comm, allgatherv_checked(send, recv, recvcounts,
					      recvdispls, type, comm, stream));
}

static dicomm_result_t
reduce_scatterv_checked(const void *send, void *recv, const size_t *recvcounts,
			dicomm_datatype_t type, dicomm_redop_t op,
			dicomm_comm_t comm, dicomm_stream_t stream)
{
	static const char f[] = "reduce_scatterv";
	struct call call = {.coll = COLL_REDUCE_SCATTERV,
			    .type = type,
			    .op = op,
			    .root = -1,
			    .send = send,
			    .recv = recv};
	size_t *own, *at, *displs, sum = 0, mine, bytes;
	int n;

	TRY(comm_check(comm, f));
	TRY(check_type(f, type));
	TRY(check_op(f, comm, type, op, &call));
	TRY(check_stream(f, comm, stream));
	TRY(check_array(f, "recvcounts", recvcounts));
	n = comm->ranks;
	mine = recvcounts[comm->rank];
	for (int r = 0; r < n; r++)
		if (__builtin_add_overflow(sum, recvcounts[r], &sum))
			return BAD("%s: recvcounts of rank %d: %zu: more than "
				   "can be addressed",
				   f, r, recvcounts[r]);
	TRY(check_buffer(f, "send", send, 1, sum, type));
	TRY(check_buffer(f, "recv", recv, 1, mine, type));
	TRY(check_memory(f, comm, send, sum * type_bytes(type), recv,
			 mine * type_bytes(type)));
	TRY(arrays(f, comm, 2, &own));
	at = own;
	call.send_counts = put_array(&at, recvcounts, n);
	call.counts = call.send_counts;
	displs = at;
	for (int r = 1; r < n; r++)
		displs[r] = displs[r - 1] + recvcounts[r - 1];
	call.send_displs = displs;
	at += n;
	call.recv_counts = put_array(&at, &mine, 1);
	call.recv_displs = at; /* 0 */
	bytes = type_bytes(type);
	if (mine &&
	    check_apart(f, send, sum * bytes, recv, mine * bytes,
			call_in_place(&call, comm->rank)) != DICOMM_SUCCESS) {
		free(own);
		return DICOMM_ERR_INVALID_ARGUMENT;
	}
	return group_call(comm, &call, own, stream);
}

dicomm_result_t dicomm_reduce_scatterv(const void *send, void *recv,
				       const size_t *recvcounts,
				       dicomm_datatype_t type,
				       dicomm_redop_t op, dicomm_comm_t comm,
				       dicomm_stream_t stream)
{
	return heard(comm, reduce_scatterv_checked(send, recv, recvcounts, type,
						   op, comm, stream));
}
