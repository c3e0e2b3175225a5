/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages between ranks of one machine that reach each other's memory. */
#include "src/engine/memory_ref.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/core/message.h"
#include "src/core/wait.h"
#include "src/memory/host_map.h"
#include "src/memory/in_process.h"
#include "src/memory/ipc.h"

/* Tells the signature of a note from that of the bytes themselves. */
#define NOTE_MARK 0x65746f6eu /* "note" */

_Static_assert(sizeof(struct memory_ref) <= TP_LINE_ROOM, "fits the line");

uint32_t memory_ref_signature(uint32_t signature)
{
	return signature ^ NOTE_MARK;
}

bool memory_ref_gave_up(const struct peer *peer)
{
	return peer->neighbour && peer->neighbour->view &&
	       ipc_gave_up(peer->neighbour->view);
}

/* ---- messages ---- */

bool memory_ref_make(const struct piece *p, struct memory_ref *mem_ref)
{
	size_t offset;

	if (!accels[0]->find(p->at, p->bytes, &mem_ref->where, &offset))
		return false;
	mem_ref->offset = offset;
	mem_ref->bytes = p->bytes;
	return true;
}

static dicomm_result_t locate(struct receive *r,
			      const struct memory_ref *mem_ref)
{
	const struct neighbour *n = r->peer->neighbour;

	if (mem_ref->where.id && n->view) {
		r->seen = true;
		return ipc_find(n->view, mem_ref->where.fd, mem_ref->where.id,
				mem_ref->offset, mem_ref->bytes, &r->src);
	}
	if (mem_ref->where.id) {
		if (!n->maps)
			return FAIL(DICOMM_ERR_REMOTE,
				    "rank %d sent a note of its own memory",
				    r->peer->rank);
		TRY(host_map_find(n->maps, &mem_ref->where, mem_ref->offset,
				  mem_ref->bytes, &r->src, &r->seen));
		r->mapped = true;
		if (r->seen || !r->op->comm->only_shared)
			return DICOMM_SUCCESS;
		return FAIL(DICOMM_ERR_NO_PATH,
			    "rank %d (host) sends from memory that was not "
			    "there when rank %d last looked, before the "
			    "operation and with none under way: %s does not "
			    "reach it yet, and staging is never",
			    r->peer->rank, r->op->comm->rank,
			    r->op->comm->device);
	}
	if (n->in_process) {
		r->src = (const void *)(uintptr_t)mem_ref->offset;
		r->seen = true;
		return DICOMM_SUCCESS;
	}
	if (mem_ref->bytes > n->stages_bytes ||
	    mem_ref->offset > n->stages_bytes - mem_ref->bytes)
		return FAIL(DICOMM_ERR_REMOTE,
			    "rank %d sent a note of what is beyond its stages",
			    r->peer->rank);
	r->src = n->stages + mem_ref->offset;
	r->seen = true;
	return DICOMM_SUCCESS;
}

enum schedule_result memory_ref_find(struct receive *r)
{
	struct dicomm_comm *comm = r->op->comm;
	enum tp_class c = r->op->prep->class;
	struct channel *channel = &r->peer->channel[c];
	const struct tp_line *line;
	dicomm_result_t status;
	struct memory_ref mem_ref;

	if (r->k && r->flow->whole)
		return step_find(r);
	if (!channel->in.lines) {
		status = comm_connect_in(comm, r->peer, c);
		if (status == DICOMM_AGAIN)
			return SCHEDULE_AGAIN;
		if (status != DICOMM_SUCCESS)
			return step_fail(r->op, status, r->step->peer);
	}
	line = message_arrived(channel, r->seq);
	if (!line)
		return SCHEDULE_AGAIN;
	if (line->signature !=
	    memory_ref_signature(step_signature(r->op, r->step)))
		return step_find(r);
	memcpy(&mem_ref, message_payload(channel, r->seq, line),
	       sizeof(mem_ref));
	if (line->len != sizeof(mem_ref) || mem_ref.bytes != r->dst.bytes) {
		wait_mismatch(comm, &r->op->call, r->op->number, r->peer->rank);
		return SCHEDULE_FAILED;
	}
	status = locate(r, &mem_ref);
	return status == DICOMM_SUCCESS
		       ? SCHEDULE_DONE
		       : step_fail(r->op, status, r->step->peer);
}
