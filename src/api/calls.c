/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public operations but those of windows. Their arguments are checked here
 * and nowhere else. A refused call has no effect.
 */
#include <stdlib.h>
#include <string.h>

#include "src/api/blocks.h"
#include "src/base/log.h"
#include "src/base/type.h"
#include "src/comm/setup.h"
#include "src/core/host_access.h"
#include "src/device/device.h"
#include "src/device/neighbour.h"
#include "src/engine/engine.h"
#include "src/engine/fast_path.h"
#include "src/island/island.h"
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
	bool local = call->function == CALL_REDUCE_LOCAL;
	uint64_t lacks = local ? comm->members[comm->rank].lacks : comm->lacks;
	const struct created_op *c;

	if (__builtin_expect(lacks >> type & 1, 0))
		return lacking(f, comm, type, local ? comm->rank : 0);
	if (local && (op == DICOMM_AVG || comm_created_op(comm, op)))
		return BAD("%s: op %s: it is of the elements of ranks", f,
			   op == DICOMM_AVG ? "avg" : "premulsum");
	if (op_valid(op)) {
		if (!op_fits(op, type))
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
	return BAD("%s: send %p and recv %p overlap, but not in the form of an "
		   "in-place call",
		   f, send, recv);
}

/* Run a repeated blocking call with few checks; see prepared_quick(). False:
 * nothing has happened, take the slow path. */
static inline __attribute__((always_inline)) bool
repeated(unsigned function, const void *send, void *recv, size_t count,
	 dicomm_datatype_t type, dicomm_redop_t op, int root,
	 struct dicomm_comm *comm, dicomm_stream_t stream,
	 dicomm_result_t *status)
{
	const struct prepared *prep;
	bool done;

	if (!comm_usable(comm) || stream || group_open())
		return false;
	if (__builtin_expect(comm->has_islands, 0) &&
	    island_takes(comm, &(struct call){.function = function,
					      .type = type,
					      .op = op,
					      .count = count}))
		return false;
	/* A prepared call may outlive the operator; see redop.c. */
	if (__builtin_expect(op >= 0x100, 0) && !comm_created_op(comm, op))
		return false;
	if (__builtin_expect(!data_path_enter_briefly(&comm->path), 0))
		return false;
	prep = prepared_quick(comm, function, send, recv, count, type, op,
			      root);
	done = prep &&
	       host_access_quick(send, prep->send_bytes, recv,
				 prep->recv_bytes) &&
	       fast_path_run(comm, prep, send, recv, status);
	data_path_leave(&comm->path);
	return done;
}

static inline bool goes_by_islands(const struct dicomm_comm *comm,
				   const struct call *call)
{
	return comm->has_islands && island_takes(comm, call);
}

static inline dicomm_result_t
uniform_checked(const char *f, unsigned function, const void *send, void *recv,
		size_t count, dicomm_datatype_t type, dicomm_redop_t op,
		int root, struct dicomm_comm *comm, dicomm_stream_t stream)
{
	struct call call = {.kind = &planned_kind,
			    .function = function,
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
	if (call_reduces(function))
		TRY(check_op(f, comm, type, op, &call));
	if (call_rooted(function))
		TRY(check_rank(f, "root", comm, root));
	TRY(stream_check(stream, comm, f));
	call_layout(function, comm->rank, comm->ranks, root, &sb, &rb);
	send_blocks = sb;
	recv_blocks = rb;
	TRY(check_buffer(f, "send", send, send_blocks, count, type));
	TRY(check_buffer(f, "recv", recv, recv_blocks, count, type));
	bytes = count * type_bytes(type);
	TRY(check_apart(f, send, send_blocks * bytes, recv, recv_blocks * bytes,
			call_in_place(&call, comm->rank, comm->ranks)));
	if (function == CALL_REDUCE_LOCAL)
		TRY(check_own(f, comm, send, recv, bytes));
	else
		TRY(check_memory(f, comm, send, send_blocks * bytes, recv,
				 recv_blocks * bytes));
	if (goes_by_islands(comm, &call))
		return island_call(comm, &call, NULL, stream);
	return group_call(comm, &call, NULL, stream);
}

/* The operations with one count. */
static inline __attribute__((always_inline)) dicomm_result_t
uniform(const char *f, unsigned function, const void *send, void *recv,
	size_t count, dicomm_datatype_t type, dicomm_redop_t op, int root,
	struct dicomm_comm *comm, dicomm_stream_t stream)
{
	dicomm_result_t status;

	if (__builtin_expect(repeated(function, send, recv, count, type, op,
				      root, comm, stream, &status),
			     1))
		return status;
	return comm_heard(comm, uniform_checked(f, function, send, recv, count,
						type, op, root, comm, stream));
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
	return uniform("reduce_local", CALL_REDUCE_LOCAL, send, recv, count,
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
	int r;

	if (!tag)
		return DICOMM_SUCCESS;
	if (tag < 0)
		return BAD("%s: tag %d: negative", f, tag);
	r = comm->dev || peer < 0 ? comm->rank : peer;
	if (!strcmp(comm->members[r].device, "host"))
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_UNSUPPORTED,
		    "%s: tag %d: rank %d is on %s, and tags are between host "
		    "ranks only",
		    f, tag, r, comm->members[r].device);
}

static dicomm_result_t send_checked(const char *f, const void *send,
				    size_t count, dicomm_datatype_t type,
				    int peer, int tag, dicomm_comm_t comm,
				    dicomm_stream_t stream)
{
	struct call call = {.kind = tag ? &tagged_kind : &point_to_point_kind,
			    .function = CALL_SEND,
			    .type = type,
			    .root = peer,
			    .count = count,
			    .tag = tag,
			    .send = send};

	TRY(comm_check(comm, f));
	TRY(check_type(f, type));
	TRY(check_rank(f, "peer", comm, peer));
	TRY(check_tag(f, comm, peer, tag));
	TRY(stream_check(stream, comm, f));
	TRY(check_buffer(f, "send", send, 1, count, type));
	TRY(check_memory(f, comm, send, count * type_bytes(type), NULL, 0));
	return group_call(comm, &call, NULL, stream);
}

dicomm_result_t dicomm_send(const void *send, size_t count,
			    dicomm_datatype_t type, int peer,
			    dicomm_comm_t comm, dicomm_stream_t stream)
{
	dicomm_result_t status;

	if (__builtin_expect(repeated(CALL_SEND, send, NULL, count, type,
				      DICOMM_SUM, peer, comm, stream, &status),
			     1))
		return status;
	return comm_heard(comm, send_checked("send", send, count, type, peer, 0,
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

static dicomm_result_t recv_checked(const char *f, struct call call,
				    bool may_be_any, dicomm_comm_t comm,
				    dicomm_stream_t stream)
{
	call.kind = call.tag ? &tagged_kind : &any_source_kind;
	call.function = CALL_RECV;
	TRY(comm_check(comm, f));
	TRY(check_type(f, call.type));
	TRY(check_source(f, comm, &call, may_be_any));
	TRY(check_tag(f, comm, call.root, call.tag));
	TRY(stream_check(stream, comm, f));
	TRY(check_buffer(f, "recv", call.recv, 1, call.count, call.type));
	TRY(check_memory(f, comm, NULL, 0, call.recv,
			 call.count * type_bytes(call.type)));
	return group_call(comm, &call, NULL, stream);
}

dicomm_result_t dicomm_recv(void *recv, size_t count, dicomm_datatype_t type,
			    int peer, dicomm_comm_t comm,
			    dicomm_stream_t stream)
{
	dicomm_result_t status;

	if (__builtin_expect(repeated(CALL_RECV, NULL, recv, count, type,
				      DICOMM_SUM, peer, comm, stream, &status),
			     1))
		return status;
	return comm_heard(comm, recv_checked("recv",
					     (struct call){.type = type,
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

	if (!tag && repeated(CALL_SEND, send, NULL, count, type, DICOMM_SUM,
			     peer, comm, stream, &status))
		return status;
	return comm_heard(comm, send_checked("send_tag", send, count, type,
					     peer, tag, comm, stream));
}

dicomm_result_t dicomm_recv_tag(void *recv, size_t count,
				dicomm_datatype_t type, int peer, int tag,
				dicomm_comm_t comm, dicomm_stream_t stream,
				dicomm_status_t *status)
{
	dicomm_result_t result;

	if (!tag && repeated(CALL_RECV, NULL, recv, count, type, DICOMM_SUM,
			     peer, comm, stream, &result)) {
		if (status && result == DICOMM_SUCCESS)
			*status = (dicomm_status_t){.source = peer,
						    .count = count};
		return result;
	}
	return comm_heard(comm, recv_checked("recv_tag",
					     (struct call){.type = type,
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
	struct call call = {.kind = &planned_kind,
			    .function = COLL_BARRIER,
			    .type = DICOMM_INT8,
			    .root = -1};

	TRY(comm_check(comm, "barrier"));
	TRY(stream_check(stream, comm, "barrier"));
	return group_call(comm, &call, NULL, stream);
}

dicomm_result_t dicomm_barrier(dicomm_comm_t comm, dicomm_stream_t stream)
{
	dicomm_result_t status;

	if (__builtin_expect(repeated(COLL_BARRIER, NULL, NULL, 0, DICOMM_INT8,
				      DICOMM_SUM, -1, comm, stream, &status),
			     1))
		return status;
	return comm_heard(comm, barrier_checked(comm, stream));
}

/* ---- counts for each rank ---- */

/* Each block of a list may be elsewhere; else one check serves all. */
static dicomm_result_t check_blocks_reach(const char *f,
					  const struct dicomm_comm *comm,
					  const struct blocks *b, size_t elem)
{
	char name[64];

	if (!b->list)
		return check_reach(f, comm, b->name, b->base, b->end);
	for (int i = 0; i < b->n; i++) {
		size_t bytes = b->placed_counts[i] * elem;

		if (!comm->dev && !comm->only_shared &&
		    host_access_knows(b->list[i], bytes, NULL, 0))
			continue;
		blocks_argument(b, i, name, sizeof(name));
		TRY(check_reach(f, comm, name, b->list[i], bytes));
	}
	return DICOMM_SUCCESS;
}

/* Has the caller given the arrays of a side with a block for each rank? */
static dicomm_result_t check_arrays(const char *f, struct blocks *b)
{
	if (!b->n)
		b->list = NULL;
	if (!b->n || !b->count_name)
		return DICOMM_SUCCESS;
	if (!b->counts)
		return BAD("%s: %s is NULL", f, b->count_name);
	if (b->displs_name && !b->displs)
		return BAD("%s: %s is NULL", f, b->displs_name);
	if (b->is_list && !b->list)
		return BAD("%s: %s is NULL", f, b->name);
	return DICOMM_SUCCESS;
}

/* What a rank sends itself, it receives from itself. */
static dicomm_result_t check_own_block(const char *f, int rank,
				       const struct blocks *sent,
				       const struct blocks *received)
{
	size_t out = sent->placed_counts[sent->n > 1 ? rank : 0];
	size_t in = received->placed_counts[received->n > 1 ? rank : 0];

	if (out == in)
		return DICOMM_SUCCESS;
	return BAD("%s: rank %d sends itself %zu elements, but receives %zu "
		   "from itself",
		   f, rank, out, in);
}

/* Fills in the call. `room` has space for the numbers of all blocks. */
static dicomm_result_t place(const char *f, const struct dicomm_comm *comm,
			     struct call *call, struct blocks *sent,
			     struct blocks *received, size_t *room)
{
	static const struct blocks none;
	size_t elem = type_bytes(call->type);
	bool in_place;
	int own = -1;

	TRY(blocks_place(f, sent, elem, room));
	TRY(blocks_place(f, received, elem, room + 2 * sent->n));
	call->send = sent->base;
	call->recv = (void *)(uintptr_t)received->base;
	if (sent->n) {
		call->send_counts = sent->placed_counts;
		call->send_displs = sent->offsets;
	}
	if (received->n) {
		call->recv_counts = received->placed_counts;
		call->recv_displs = received->offsets;
	}
	if (call->function == COLL_ALLGATHERV)
		call->counts = call->recv_counts;
	if (call->function == COLL_REDUCE_SCATTERV)
		call->counts = call->send_counts;
	TRY(check_blocks_reach(f, comm, sent, elem));
	TRY(check_blocks_reach(f, comm, received, elem));
	if (sent->n && received->n)
		TRY(check_own_block(f, comm->rank, sent, received));
	in_place = call_in_place(call, comm->rank, comm->ranks);
	if (in_place && call->function == COLL_ALLTOALLV)
		return blocks_check_apart(f, &none, received, elem, -1);
	if (in_place)
		own = sent->n > 1 ? comm->rank : 0;
	return blocks_check_apart(f, sent, received, elem, own);
}

static dicomm_result_t run_blocks(const char *f, struct dicomm_comm *comm,
				  struct call *call, struct blocks *sent,
				  struct blocks *received,
				  dicomm_stream_t stream)
{
	size_t n = 2 * ((size_t)sent->n + (size_t)received->n);
	size_t *room = calloc(n, sizeof(*room));
	dicomm_result_t status;

	if (!room)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "%s: no memory for the counts of %d ranks", f,
			    comm->ranks);
	status = place(f, comm, call, sent, received, room);
	if (status != DICOMM_SUCCESS) {
		free(room);
		return status;
	}
	if (goes_by_islands(comm, call))
		return island_call(comm, call, room, stream);
	return group_call(comm, call, room, stream);
}

static dicomm_result_t with_counts_checked(const char *f, struct call *call,
					   struct blocks *sent,
					   struct blocks *received,
					   struct dicomm_comm *comm,
					   dicomm_stream_t stream)
{
	uint32_t sb, rb;

	TRY(comm_check(comm, f));
	TRY(check_type(f, call->type));
	if (call_reduces(call->function))
		TRY(check_op(f, comm, call->type, call->op, call));
	if (call_rooted(call->function))
		TRY(check_rank(f, "root", comm, call->root));
	TRY(stream_check(stream, comm, f));
	call_layout(call->function, comm->rank, comm->ranks, call->root, &sb,
		    &rb);
	sent->n = (int)sb;
	received->n = (int)rb;
	TRY(check_arrays(f, sent));
	TRY(check_arrays(f, received));
	if (call->function == COLL_ALLGATHERV)
		sent->counts = &received->counts[comm->rank];
	if (call->function == COLL_REDUCE_SCATTERV)
		received->counts = &sent->counts[comm->rank];
	return run_blocks(f, comm, call, sent, received, stream);
}

/* The operations with a count for each rank. */
static dicomm_result_t with_counts(const char *f, struct call call,
				   struct blocks sent, struct blocks received,
				   struct dicomm_comm *comm,
				   dicomm_stream_t stream)
{
	return comm_heard(comm, with_counts_checked(f, &call, &sent, &received,
						    comm, stream));
}

/* A side with one block. Its count may be that of this rank on the other
 * side. */
static struct blocks one_block(const char *name, const void *at,
			       const size_t *count)
{
	return (struct blocks){.name = name, .at = at, .counts = count};
}

/* A side with a block for each rank, behind one address or in a list. The names
 * are those of the arguments; the displacements have none if there are none. */
static struct blocks buffer(const char *name, const void *at,
			    const char *count_name, const size_t *counts,
			    const char *displs_name, const size_t *displs)
{
	return (struct blocks){.name = name,
			       .count_name = count_name,
			       .displs_name = displs_name,
			       .at = at,
			       .counts = counts,
			       .displs = displs};
}

static struct blocks list(const char *name, const void *const *at,
			  const char *count_name, const size_t *counts)
{
	return (struct blocks){.name = name,
			       .count_name = count_name,
			       .is_list = true,
			       .list = at,
			       .counts = counts};
}

static struct call call_of(unsigned function, dicomm_datatype_t type, int root)
{
	return (struct call){.kind = &planned_kind,
			     .function = function,
			     .type = type,
			     .root = root};
}

dicomm_result_t dicomm_alltoallv(const void *send, const size_t *sendcounts,
				 const size_t *senddispls, void *recv,
				 const size_t *recvcounts,
				 const size_t *recvdispls,
				 dicomm_datatype_t type, dicomm_comm_t comm,
				 dicomm_stream_t stream)
{
	return with_counts("alltoallv", call_of(COLL_ALLTOALLV, type, -1),
			   buffer("send", send, "sendcounts", sendcounts,
				  "senddispls", senddispls),
			   buffer("recv", recv, "recvcounts", recvcounts,
				  "recvdispls", recvdispls),
			   comm, stream);
}

dicomm_result_t
dicomm_alltoallv_list(const void *const *sends, const size_t *sendcounts,
		      void *const *recvs, const size_t *recvcounts,
		      dicomm_datatype_t type, dicomm_comm_t comm,
		      dicomm_stream_t stream)
{
	return with_counts("alltoallv_list", call_of(COLL_ALLTOALLV, type, -1),
			   list("sends", sends, "sendcounts", sendcounts),
			   list("recvs", (const void *const *)recvs,
				"recvcounts", recvcounts),
			   comm, stream);
}

dicomm_result_t dicomm_allgatherv(const void *send, void *recv,
				  const size_t *recvcounts,
				  const size_t *recvdispls,
				  dicomm_datatype_t type, dicomm_comm_t comm,
				  dicomm_stream_t stream)
{
	return with_counts("allgatherv", call_of(COLL_ALLGATHERV, type, -1),
			   one_block("send", send, NULL),
			   buffer("recv", recv, "recvcounts", recvcounts,
				  "recvdispls", recvdispls),
			   comm, stream);
}

dicomm_result_t dicomm_allgatherv_list(const void *send, void *const *recvs,
				       const size_t *recvcounts,
				       dicomm_datatype_t type,
				       dicomm_comm_t comm,
				       dicomm_stream_t stream)
{
	return with_counts("allgatherv_list",
			   call_of(COLL_ALLGATHERV, type, -1),
			   one_block("send", send, NULL),
			   list("recvs", (const void *const *)recvs,
				"recvcounts", recvcounts),
			   comm, stream);
}

dicomm_result_t dicomm_reduce_scatterv(const void *send, void *recv,
				       const size_t *recvcounts,
				       dicomm_datatype_t type,
				       dicomm_redop_t op, dicomm_comm_t comm,
				       dicomm_stream_t stream)
{
	struct call call = call_of(COLL_REDUCE_SCATTERV, type, -1);

	call.op = op;
	return with_counts(
		"reduce_scatterv", call,
		buffer("send", send, "recvcounts", recvcounts, NULL, NULL),
		one_block("recv", recv, NULL), comm, stream);
}

dicomm_result_t
dicomm_reduce_scatterv_list(const void *const *sends, void *recv,
			    const size_t *recvcounts, dicomm_datatype_t type,
			    dicomm_redop_t op, dicomm_comm_t comm,
			    dicomm_stream_t stream)
{
	struct call call = call_of(COLL_REDUCE_SCATTERV, type, -1);

	call.op = op;
	return with_counts("reduce_scatterv_list", call,
			   list("sends", sends, "recvcounts", recvcounts),
			   one_block("recv", recv, NULL), comm, stream);
}

dicomm_result_t dicomm_gatherv(const void *send, size_t sendcount, void *recv,
			       const size_t *recvcounts,
			       const size_t *recvdispls, dicomm_datatype_t type,
			       int root, dicomm_comm_t comm,
			       dicomm_stream_t stream)
{
	return with_counts("gatherv", call_of(COLL_GATHERV, type, root),
			   one_block("send", send, &sendcount),
			   buffer("recv", recv, "recvcounts", recvcounts,
				  "recvdispls", recvdispls),
			   comm, stream);
}

dicomm_result_t dicomm_gatherv_list(const void *send, size_t sendcount,
				    void *const *recvs,
				    const size_t *recvcounts,
				    dicomm_datatype_t type, int root,
				    dicomm_comm_t comm, dicomm_stream_t stream)
{
	return with_counts("gatherv_list", call_of(COLL_GATHERV, type, root),
			   one_block("send", send, &sendcount),
			   list("recvs", (const void *const *)recvs,
				"recvcounts", recvcounts),
			   comm, stream);
}

dicomm_result_t dicomm_scatterv(const void *send, const size_t *sendcounts,
				const size_t *senddispls, void *recv,
				size_t recvcount, dicomm_datatype_t type,
				int root, dicomm_comm_t comm,
				dicomm_stream_t stream)
{
	return with_counts("scatterv", call_of(COLL_SCATTERV, type, root),
			   buffer("send", send, "sendcounts", sendcounts,
				  "senddispls", senddispls),
			   one_block("recv", recv, &recvcount), comm, stream);
}

dicomm_result_t dicomm_scatterv_list(const void *const *sends,
				     const size_t *sendcounts, void *recv,
				     size_t recvcount, dicomm_datatype_t type,
				     int root, dicomm_comm_t comm,
				     dicomm_stream_t stream)
{
	return with_counts("scatterv_list", call_of(COLL_SCATTERV, type, root),
			   list("sends", sends, "sendcounts", sendcounts),
			   one_block("recv", recv, &recvcount), comm, stream);
}
