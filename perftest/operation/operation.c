/* SPDX-License-Identifier: BSD-3-Clause */
/* What each operation sends, receives and must deliver, and its bandwidths. */
#include <string.h>

#include "perftest/operation/operation.h"

const struct operation operations[OPERATIONS] = {
	{OPERATION_ALLREDUCE, "allreduce", "all_reduce_perf", .reduces = true,
	 .in_place = true, .checked_in_place = true},
	{OPERATION_ALLGATHER, "allgather", "all_gather_perf", .in_place = true,
	 .checked_in_place = true},
	{OPERATION_REDUCE_SCATTER, "reduce_scatter", "reduce_scatter_perf",
	 .reduces = true, .in_place = true, .checked_in_place = true},
	{OPERATION_BROADCAST, "broadcast", "broadcast_perf", .rooted = true,
	 .in_place = true, .checked_in_place = true},
	{OPERATION_REDUCE, "reduce", "reduce_perf", .reduces = true,
	 .rooted = true, .in_place = true, .checked_in_place = true},
	{OPERATION_ALLTOALL, "alltoall", "alltoall_perf", .in_place = true,
	 .checked_in_place = true},
	{OPERATION_ALLTOALLV, "alltoallv", "alltoallv_perf", .in_place = false},
	{OPERATION_GATHER, "gather", "gather_perf", .rooted = true,
	 .in_place = true, .checked_in_place = true},
	{OPERATION_SCATTER, "scatter", "scatter_perf", .rooted = true,
	 .in_place = true, .checked_in_place = true},
	{OPERATION_GATHERV, "gatherv", "gatherv_perf", .rooted = true,
	 .in_place = true, .checked_in_place = true},
	{OPERATION_SCATTERV, "scatterv", "scatterv_perf", .rooted = true,
	 .in_place = true, .checked_in_place = true},
	/* In place, data may be overwritten before it is sent. */
	{OPERATION_SENDRECV, "sendrecv", "sendrecv_perf", .in_place = true},
	/* Each rank into a window of the next one, or from one of the one
	 * before. */
	{OPERATION_PUT, "put", "put_perf", .one_sided = true},
	{OPERATION_GET, "get", "get_perf", .one_sided = true},
	{OPERATION_BARRIER, "barrier", "barrier_perf", .in_place = true,
	 .checked_in_place = true},
};

const struct operation *operation_find(const char *name)
{
	const char *slash = strrchr(name, '/');

	name = slash ? slash + 1 : name;
	/* libtool's prefix for a program that is not installed */
	if (strncmp(name, "lt-", 3) == 0)
		name += 3;
	for (int i = 0; i < OPERATIONS; i++) {
		size_t stem = strlen(operations[i].program) - strlen("_perf");

		if (strcmp(name, operations[i].name) == 0 ||
		    strcmp(name, operations[i].program) == 0 ||
		    (strlen(name) == stem &&
		     strncmp(name, operations[i].program, stem) == 0))
			return &operations[i];
	}
	return NULL;
}

bool operation_has_counts(const struct operation *op)
{
	return op->id == OPERATION_ALLTOALLV || op->id == OPERATION_GATHERV ||
	       op->id == OPERATION_SCATTERV;
}

/* Returns a rank's share of a scattered buffer, which is a multiple of 16
 * bytes. */
static size_t share(size_t count, size_t bytes, int ranks)
{
	return count / (size_t)ranks & ~(16 / bytes - 1);
}

static struct geometry alltoallv_geometry(size_t count, size_t bytes, int ranks,
					  const struct traffic *traffic)
{
	struct geometry g = {0};

	if (!traffic->matrix)
		g.param = share(count, bytes, ranks);
	traffic_most(traffic, ranks, g.param * (size_t)ranks * bytes, &g.send,
		     &g.recv);
	g.send /= bytes;
	g.recv /= bytes;
	return g;
}

struct geometry operation_geometry(const struct operation *op, size_t count,
				   size_t bytes, int ranks,
				   const struct traffic *traffic)
{
	size_t part = share(count, bytes, ranks);
	size_t whole = part * (size_t)ranks;

	switch (op->id) {
	case OPERATION_ALLGATHER:
	case OPERATION_GATHER:
	case OPERATION_GATHERV:
		return (struct geometry){part, whole, part, part, 0};
	case OPERATION_REDUCE_SCATTER:
	case OPERATION_SCATTER:
	case OPERATION_SCATTERV:
		return (struct geometry){whole, part, part, 0, part};
	case OPERATION_ALLTOALL:
		return (struct geometry){whole, whole, part, 0, 0};
	case OPERATION_ALLTOALLV:
		return alltoallv_geometry(count, bytes, ranks, traffic);
	case OPERATION_BARRIER:
		return (struct geometry){0};
	default:
		return (struct geometry){count, count, count, 0, 0};
	}
}

void operation_bandwidth(const struct operation *op, const struct geometry *g,
			 size_t bytes, int ranks, double seconds,
			 double *algorithm, double *bus)
{
	size_t most = g->send > g->recv ? g->send : g->recv;
	double n = ranks;

	*algorithm = (double)(most * bytes) / 1e9 / seconds;
	switch (op->id) {
	case OPERATION_ALLREDUCE:
		*bus = *algorithm * (2 * (n - 1) / n);
		break;
	case OPERATION_BROADCAST:
	case OPERATION_REDUCE:
	case OPERATION_SENDRECV:
	case OPERATION_PUT:
	case OPERATION_GET:
		*bus = *algorithm;
		break;
	default:
		*bus = *algorithm * ((n - 1) / n);
	}
}

static int rank_before(const struct call *c)
{
	return (c->rank + c->ranks - 1) % c->ranks;
}

static dicomm_result_t sendrecv(const struct call *c, const void *send,
				void *recv, dicomm_comm_t comm,
				dicomm_stream_t stream)
{
	int next = (c->rank + 1) % c->ranks;
	int previous = rank_before(c);
	dicomm_result_t status, sent, received;

	status = dicomm_group_start();
	if (status != DICOMM_SUCCESS)
		return status;
	sent = dicomm_send(send, c->geometry.param, c->type->id, next, comm,
			   stream);
	received = dicomm_recv(recv, c->geometry.param, c->type->id, previous,
			       comm, stream);
	status = dicomm_group_end();
	if (sent != DICOMM_SUCCESS)
		return sent;
	return received != DICOMM_SUCCESS ? received : status;
}

/* It is done when the put of the rank before is there. */
static dicomm_result_t put(const struct call *c, const void *send,
			   const void *recv, dicomm_comm_t comm,
			   dicomm_stream_t stream)
{
	const dicomm_wait_signal_desc_t signal = {.count = 1,
						  .peer = rank_before(c)};
	dicomm_result_t status;

	status = dicomm_put_signal(
		send, c->geometry.param, c->type->id, (c->rank + 1) % c->ranks,
		c->window, (size_t)((const char *)recv - c->window_base), 0, 0,
		0, comm, stream);
	if (status != DICOMM_SUCCESS)
		return status;
	return dicomm_wait_signal(1, &signal, comm, stream);
}

dicomm_result_t operation_run(const struct call *c, const void *send,
			      void *recv, dicomm_comm_t comm,
			      dicomm_stream_t stream)
{
	size_t count = c->geometry.param;
	dicomm_datatype_t type = c->type->id;

	switch (c->op->id) {
	case OPERATION_ALLREDUCE:
		return dicomm_allreduce(send, recv, count, type, c->redop, comm,
					stream);
	case OPERATION_ALLGATHER:
		return dicomm_allgather(send, recv, count, type, comm, stream);
	case OPERATION_REDUCE_SCATTER:
		return dicomm_reduce_scatter(send, recv, count, type, c->redop,
					     comm, stream);
	case OPERATION_BROADCAST:
		return dicomm_broadcast(send, recv, count, type, c->root, comm,
					stream);
	case OPERATION_REDUCE:
		return dicomm_reduce(send, recv, count, type, c->redop, c->root,
				     comm, stream);
	case OPERATION_ALLTOALL:
		return dicomm_alltoall(send, recv, count, type, comm, stream);
	case OPERATION_ALLTOALLV:
		return dicomm_alltoallv(
			send, c->part->send_counts, c->part->send_displs, recv,
			c->part->recv_counts, c->part->recv_displs, type, comm,
			stream);
	case OPERATION_GATHER:
		return dicomm_gather(send, recv, count, type, c->root, comm,
				     stream);
	case OPERATION_SCATTER:
		return dicomm_scatter(send, recv, count, type, c->root, comm,
				      stream);
	case OPERATION_GATHERV:
		return dicomm_gatherv(send, count, recv, c->part->recv_counts,
				      c->part->recv_displs, type, c->root, comm,
				      stream);
	case OPERATION_SCATTERV:
		return dicomm_scatterv(send, c->part->send_counts,
				       c->part->send_displs, recv, count, type,
				       c->root, comm, stream);
	case OPERATION_SENDRECV:
		return sendrecv(c, send, recv, comm, stream);
	case OPERATION_PUT:
		return put(c, send, recv, comm, stream);
	case OPERATION_GET:
		return dicomm_get(recv, count, type, rank_before(c), c->window,
				  (size_t)((const char *)send - c->window_base),
				  comm, stream);
	default:
		return dicomm_barrier(comm, stream);
	}
}

/* Returns the seed of the data that depends on the rank that sends it. */
static uint64_t rank_seed(uint64_t seed, int rank)
{
	return seed * 1000003 + (uint64_t)rank;
}

bool operation_sent(const struct call *c, uint64_t seed, int k,
		    struct piece *piece)
{
	if (k > 0 || c->op->id == OPERATION_BARRIER)
		return false;
	*piece = (struct piece){.count = c->geometry.send,
				.kind = PIECE_DATA,
				.seed = rank_seed(seed, c->rank)};
	switch (c->op->id) {
	case OPERATION_ALLREDUCE:
	case OPERATION_REDUCE:
	case OPERATION_REDUCE_SCATTER:
		piece->kind = PIECE_INPUT;
		piece->seed = seed;
		break;
	case OPERATION_BROADCAST:
	case OPERATION_SCATTER:
	case OPERATION_SCATTERV:
		if (c->rank != c->root)
			piece->kind = PIECE_ZERO;
		break;
	default:
		break;
	}
	return true;
}

/* Returns what rank `from` sends to this rank, at its place in the receive
 * buffer. */
static struct piece part_from(const struct call *c, uint64_t seed, int from)
{
	size_t part = c->geometry.param;
	struct piece piece = {.kind = PIECE_DATA,
			      .seed = rank_seed(seed, from)};

	if (c->op->id == OPERATION_ALLTOALLV) {
		size_t bytes = c->type->bytes;
		size_t total = part * (size_t)c->ranks * bytes;

		piece.at = c->part->recv_displs[from];
		piece.count = c->part->recv_counts[from];
		for (int to = 0; to < c->rank; to++)
			piece.base += traffic_bytes(c->traffic, from, to,
						    c->ranks, total) /
				      bytes;
		return piece;
	}
	piece.at = (size_t)from * part;
	piece.count = part;
	if (c->op->id == OPERATION_ALLTOALL)
		piece.base = (size_t)c->rank * part;
	return piece;
}

bool operation_received(const struct call *c, uint64_t seed, bool in_place,
			int k, struct piece *piece)
{
	struct piece whole = {.count = c->geometry.recv};
	bool parts = false;

	switch (c->op->id) {
	case OPERATION_ALLREDUCE:
		whole.kind = PIECE_OUTPUT;
		whole.seed = seed;
		break;
	case OPERATION_REDUCE:
		/* A rank that is not the root keeps its data. */
		whole.kind = c->rank == c->root ? PIECE_OUTPUT
			     : in_place         ? PIECE_INPUT
						: PIECE_ZERO;
		whole.seed = seed;
		break;
	case OPERATION_REDUCE_SCATTER:
		whole.kind = PIECE_OUTPUT;
		whole.seed = seed;
		whole.base = (size_t)c->rank * c->geometry.param;
		break;
	case OPERATION_BROADCAST:
		whole.kind = PIECE_DATA;
		whole.seed = rank_seed(seed, c->root);
		break;
	case OPERATION_SCATTER:
	case OPERATION_SCATTERV:
		whole.kind = PIECE_DATA;
		whole.seed = rank_seed(seed, c->root);
		whole.base = (size_t)c->rank * c->geometry.param;
		break;
	case OPERATION_SENDRECV:
	case OPERATION_PUT:
	case OPERATION_GET:
		whole.kind = PIECE_DATA;
		whole.seed = rank_seed(seed, rank_before(c));
		break;
	case OPERATION_BARRIER:
		return false;
	case OPERATION_GATHER:
	case OPERATION_GATHERV:
		if (c->rank == c->root) {
			parts = true;
		} else if (in_place) {
			/* In place, its own part remains where it sent it
			 * from. */
			whole = part_from(c, seed, c->rank);
		} else {
			whole.kind = PIECE_ZERO;
		}
		break;
	default:
		parts = true;
	}
	if (parts && k < c->ranks)
		*piece = part_from(c, seed, k);
	else if (k == 0)
		*piece = whole;
	else
		return false;
	return true;
}
