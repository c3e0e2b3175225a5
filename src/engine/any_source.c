/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives without a tag from any source: finds the source. */
#include "src/engine/any_source.h"

#include "src/base/log.h"
#include "src/message/channel.h"
#include "src/core/paths.h"
#include "src/engine/woken.h"

dicomm_result_t any_source_post(struct operation *op)
{
	struct dicomm_comm *comm = op->comm;

	if (comm->unbound)
		comm->last_unbound->tagged.next = op;
	else
		comm->unbound = op;
	comm->last_unbound = op;
	op->tagged.next = NULL;
	op->unbound = true;
	op->number = 0;
	return DICOMM_SUCCESS;
}

/* The first one leaves the list; the next one may look. */
static void leave_first(struct dicomm_comm *comm)
{
	comm->unbound = comm->unbound->tagged.next;
	if (comm->unbound)
		woken_add(comm->unbound);
}

void any_source_drop(struct operation *op)
{
	struct dicomm_comm *comm = op->comm;
	struct operation *at = comm->unbound, *before = NULL;

	while (at && at != op) {
		before = at;
		at = at->tagged.next;
	}
	if (at && before)
		before->tagged.next = op->tagged.next;
	else if (at)
		leave_first(comm);
	if (at && comm->last_unbound == op)
		comm->last_unbound = before;
	op->unbound = false;
}

/* Is the next message of that rank there, and no other receive's? */
static dicomm_result_t look_at(struct dicomm_comm *comm, int rank)
{
	struct channel *channel;
	struct peer *peer;

	if (!comm->peers[rank].transports || comm->peers[rank].last_recv)
		return DICOMM_AGAIN;
	TRY(comm_peer(comm, rank, &peer));
	channel = &peer->channel[TP_POINT_TO_POINT];
	if (!channel->in.lines)
		TRY(channel_connect_in(comm, peer, TP_POINT_TO_POINT));
	return message_arrived(channel, channel->in_base + 1) ? DICOMM_SUCCESS
							      : DICOMM_AGAIN;
}

dicomm_result_t any_source_look(struct operation *op)
{
	struct dicomm_comm *comm = op->comm;
	dicomm_result_t status = DICOMM_SUCCESS;

	if (comm->unbound != op)
		return DICOMM_AGAIN;
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
	leave_first(comm);
	return DICOMM_SUCCESS;
}
