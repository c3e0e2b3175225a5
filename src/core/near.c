/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages between ranks of one machine that reach each other's memory. */
#include "src/core/near.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/core/device.h"
#include "src/core/lent.h"
#include "src/core/meet.h"
#include "src/core/message.h"
#include "src/core/pin.h"
#include "src/core/wait.h"

/* Tells the signature of a note from that of the bytes themselves. */
#define NOTE_MARK 0x65746f6eu /* "note" */

_Static_assert(sizeof(struct near_note) <= TP_LINE_ROOM, "fits the line");

uint32_t near_signature(uint32_t signature)
{
	return signature ^ NOTE_MARK;
}

/* ---- what is mapped ---- */

/* Stages in the memory of a device of the same kind */
static dicomm_result_t open_device(struct dicomm_comm *comm, int rank,
				   struct near *n)
{
	const struct member *other = &comm->members[rank];
	struct device *dev = comm->dev;

	TRY(lease_take(&other->lease, &n->lease));
	n->stages_bytes = other->near.bytes - other->near.offset;
	TRY(dev->work->mem_import(dev->index, &other->near, &n->ipc));
	n->stages = (uint8_t *)n->ipc + other->near.offset;
	TRY(ipc_view_open(dev->ipc, &other->page, rank, comm->rank, &n->view));
	return DICOMM_SUCCESS;
}

static bool close_device(struct later *later)
{
	struct near *n = (struct near *)later;

	if (n->ipc)
		later->work->mem_unimport(later->index, n->ipc);
	if (n->lease >= 0)
		lease_give(n->lease);
	free(n);
	return true;
}

/* What a rank of this process sends */
static dicomm_result_t open_lent(struct dicomm_comm *comm,
				 const struct member *other, struct near *n)
{
	char why[256];
	int index;

	n->lent = lent_find(other->lent);
	n->apart = strcmp(other->device, comm->device) != 0;
	if (n->lent && !n->apart)
		return DICOMM_SUCCESS;
	if (n->lent && accel_find(other->device, &index, why, sizeof(why)))
		return comm->dev->work->reach(comm->index, index);
	log_set_last_error("no rank of this process lends it");
	return DICOMM_ERR_UNSUPPORTED;
}

/* Stages in host memory, which the device of the other writes */
static dicomm_result_t open_host(const struct member *other, struct near *n)
{
	TRY(accels[0]->import(&other->stages, &n->map));
	n->where = other->stages;
	n->stages = n->map;
	n->stages_bytes = other->stages.bytes;
	return DICOMM_SUCCESS;
}

dicomm_result_t near_open(struct dicomm_comm *comm, int rank,
			  const struct accel_export *board)
{
	const struct member *other = &comm->members[rank];
	struct peer *peer = &comm->peers[rank];
	struct device *dev = comm->dev;
	dicomm_result_t status;

	peer->near = calloc(1, sizeof(*peer->near));
	if (!peer->near)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "memory of a neighbour: out of memory");
	peer->near->lease = -1;
	if (dev)
		peer->near->later = (struct later){.work = dev->work,
						   .index = dev->index,
						   .go = close_device};
	if (!dev)
		status = open_host(other, peer->near);
	else if (board)
		status = pin_open(dev->work, dev->index, board,
				  &peer->near->pins);
	else if (other->pid == comm->members[comm->rank].pid)
		status = open_lent(comm, other, peer->near);
	else
		status = open_device(comm, rank, peer->near);
	if (status != DICOMM_SUCCESS)
		near_close(comm, rank);
	return status;
}

void near_close(struct dicomm_comm *comm, int rank)
{
	struct near *n = comm->peers[rank].near;

	if (!n)
		return;
	ipc_view_close(n->view);
	if (n->map)
		accels[0]->unimport(&n->where, n->map);
	pin_close(n->pins);
	lent_put(n->lent);
	comm->peers[rank].near = NULL;
	if (n->ipc)
		held_later(&n->later);
	else
		close_device(&n->later);
}

void near_refresh(struct dicomm_comm *comm)
{
	for (int r = 0; comm->shares && r < comm->ranks; r++) {
		const struct near *n = comm->peers[r].near;

		if (n && n->pins)
			pin_refresh(n->pins);
	}
	if (comm->dev && comm->dev->ipc)
		ipc_refresh();
}

bool near_gave_up(const struct peer *peer)
{
	return peer->near && peer->near->view && ipc_gave_up(peer->near->view);
}

/* ---- messages ---- */

bool near_note(const struct piece *p, struct near_note *note)
{
	size_t offset;

	if (!accels[0]->find(p->at, p->bytes, &note->where, &offset))
		return false;
	note->offset = offset;
	note->bytes = p->bytes;
	return true;
}

static dicomm_result_t locate(struct receive *r, const struct near_note *note)
{
	const struct near *n = r->peer->near;

	if (note->where.id && n->view) {
		r->seen = true;
		return ipc_find(n->view, note->where.fd, note->where.id,
				note->offset, note->bytes, &r->src);
	}
	if (note->where.id) {
		if (!n->pins)
			return FAIL(DICOMM_ERR_REMOTE,
				    "rank %d sent a note of its own memory",
				    r->peer->rank);
		TRY(pin_find(n->pins, &note->where, note->offset, note->bytes,
			     &r->src, &r->seen));
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
	if (n->lent) {
		r->src = (const void *)(uintptr_t)note->offset;
		r->seen = true;
		return DICOMM_SUCCESS;
	}
	if (note->bytes > n->stages_bytes ||
	    note->offset > n->stages_bytes - note->bytes)
		return FAIL(DICOMM_ERR_REMOTE,
			    "rank %d sent a note of what is beyond its stages",
			    r->peer->rank);
	r->src = n->stages + note->offset;
	r->seen = true;
	return DICOMM_SUCCESS;
}

enum schedule_result near_find(struct receive *r)
{
	struct dicomm_comm *comm = r->op->comm;
	enum tp_class c = r->op->exe->class;
	struct lane *lane = &r->peer->lane[c];
	const struct tp_line *line;
	dicomm_result_t status;
	struct near_note note;

	if (r->k && r->flow->whole)
		return step_find(r);
	if (!lane->in.lines) {
		status = comm_connect_in(comm, r->peer, c);
		if (status == DICOMM_AGAIN)
			return SCHEDULE_AGAIN;
		if (status != DICOMM_SUCCESS)
			return step_fail(r->op, status, r->step->peer);
	}
	line = message_arrived(lane, r->seq);
	if (!line)
		return SCHEDULE_AGAIN;
	if (line->signature != near_signature(step_signature(r->op, r->step)))
		return step_find(r);
	memcpy(&note, message_payload(lane, r->seq, line), sizeof(note));
	if (line->len != sizeof(note) || note.bytes != r->dst.bytes) {
		wait_unlike(comm, &r->op->call, r->op->number, r->peer->rank);
		return SCHEDULE_FAILED;
	}
	status = locate(r, &note);
	return status == DICOMM_SUCCESS
		       ? SCHEDULE_DONE
		       : step_fail(r->op, status, r->step->peer);
}

dicomm_result_t near_check(const struct dicomm_comm *comm, const char *f,
			   const char *name, const void *at, size_t bytes)
{
	struct accel_export where;
	size_t offset;
	int r = 0;

	if (accels[0]->find(at, bytes, &where, &offset))
		return DICOMM_SUCCESS;
	while (!comm->peers[r].is_near)
		r++;
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
		    "%s: %s %p is not memory of dicomm_mem_alloc: rank %d (%s) "
		    "reaches no other of rank %d (host), and staging is never",
		    f, name, at, r, comm->members[r].device, comm->rank);
}
