/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives without a tag, until their source is known.
 *
 * A receive from any source has no number, and so no place among the receives
 * from a peer, until a message is there that no earlier receive takes. Until
 * then, later receives have no number either, because the next message of their
 * peer may be for this one. All of them wait in one queue, in call order. When
 * the source is known, the receive becomes a point-to-point operation.
 */
#include "src/base/log.h"
#include "src/core/paths.h"
#include "src/engine/engine.h"
#include "src/engine/order.h"
#include "src/engine/step.h"
#include "src/message/channel.h"

/* The source is known, so it gets its place among those of its peer. */
static dicomm_result_t find_place(struct operation *op)
{
	op->kind = &point_to_point_kind;
	return op->kind->post(op);
}

static dicomm_result_t post(struct operation *op)
{
	struct dicomm_comm *comm = op->comm;

	if (op->call.root >= 0 && !comm->last_unbound)
		return find_place(op);
	op->number = 0;
	order_join(op, &comm->last_unbound);
	return DICOMM_SUCCESS;
}

/* Is the next message of that rank there, and no other receive's? */
static dicomm_result_t look_at(struct dicomm_comm *comm, int rank)
{
	struct tp_line *line;
	struct peer *peer;

	if (!comm->ways[rank] || comm->peers[rank].last_recv)
		return DICOMM_AGAIN;
	TRY(comm_peer(comm, rank, &peer));
	return message_look(comm, peer, TP_POINT_TO_POINT,
			    peer->channel[TP_POINT_TO_POINT].in_base + 1,
			    &line);
}

static dicomm_result_t find_source(struct operation *op)
{
	struct dicomm_comm *comm = op->comm;
	dicomm_result_t status = DICOMM_SUCCESS;

	/* Begin after the last source, so that none is left out for long. */
	for (int i = 0; i < comm->ranks && op->call.root < 0; i++) {
		int rank = (comm->next_source + i) % comm->ranks;

		status = look_at(comm, rank);
		if (status == DICOMM_SUCCESS)
			op->call.root = rank;
		else if (status != DICOMM_AGAIN)
			return status;
	}
	if (op->call.root < 0)
		return DICOMM_AGAIN;
	comm->next_source = op->call.root + 1;
	order_leave(op);
	return find_place(op);
}

static enum schedule_result turn(struct operation *op, bool *progressed)
{
	dicomm_result_t status;

	if (op->before)
		return SCHEDULE_AGAIN;
	status = find_source(op);
	if (status == DICOMM_AGAIN)
		return SCHEDULE_AGAIN;
	if (status != DICOMM_SUCCESS)
		return step_fail(op, status, op->call.root);
	*progressed = true;
	return op->kind->turn(op, progressed);
}

static void awaits(const struct operation *op, struct wait_for *f)
{
	f->peer = op->call.root;
}

const struct operation_kind any_source_kind = {
	.name = "any-source", .post = post, .turn = turn, .awaits = awaits};
