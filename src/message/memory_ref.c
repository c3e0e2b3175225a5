/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages between ranks of one machine that reach each other's memory. */
#include "src/message/memory_ref.h"

#include "src/accel/host/memory.h"
#include "src/base/log.h"
#include "src/memory/host_map.h"
#include "src/memory/in_process.h"
#include "src/memory/ipc.h"

/* Tells the signature of a reference from that of a message with bytes. */
#define REF_MARK 0x65746f6eu /* any constant */

_Static_assert(sizeof(struct memory_ref) <= TP_LINE_ROOM, "fits the line");

uint32_t memory_ref_signature(uint32_t signature)
{
	return signature ^ REF_MARK;
}

bool memory_ref_gave_up(const struct peer *peer)
{
	return peer->neighbour && peer->neighbour->view &&
	       ipc_gave_up(peer->neighbour->view);
}

/* ---- messages ---- */

bool memory_ref_make(const void *at, size_t bytes, struct memory_ref *mem_ref)
{
	size_t offset;

	if (!host_memory_find(at, bytes, &mem_ref->where, &offset))
		return false;
	mem_ref->offset = offset;
	mem_ref->bytes = bytes;
	return true;
}

dicomm_result_t memory_ref_locate(const struct dicomm_comm *comm,
				  const struct peer *peer,
				  const struct memory_ref *mem_ref,
				  struct memory_place *place)
{
	const struct neighbour *n = peer->neighbour;

	if (mem_ref->where.id && n->view) {
		place->seen = true;
		return ipc_find(n->view, mem_ref->where.fd, mem_ref->where.id,
				mem_ref->offset, mem_ref->bytes, &place->at);
	}
	if (mem_ref->where.id) {
		if (!n->maps)
			return FAIL(
				DICOMM_ERR_REMOTE,
				"rank %d sent a reference to host memory, but "
				"shares none",
				peer->rank);
		TRY(host_map_find(n->maps, &mem_ref->where, mem_ref->offset,
				  mem_ref->bytes, &place->at, &place->seen));
		place->mapped = true;
		if (place->seen || !comm->only_shared)
			return DICOMM_SUCCESS;
		return FAIL(DICOMM_ERR_NO_PATH,
			    "rank %d (host) sends from memory that was not "
			    "there when rank %d last looked, before the "
			    "operation and with none under way: %s does not "
			    "reach it yet, and staging is never",
			    peer->rank, comm->rank, comm->device);
	}
	if (n->in_process) {
		place->at = (const void *)(uintptr_t)mem_ref->offset;
		place->seen = true;
		return DICOMM_SUCCESS;
	}
	if (mem_ref->bytes > n->stages_bytes ||
	    mem_ref->offset > n->stages_bytes - mem_ref->bytes)
		return FAIL(DICOMM_ERR_REMOTE,
			    "rank %d sent a reference beyond its staging "
			    "buffers",
			    peer->rank);
	place->at = n->stages + mem_ref->offset;
	place->seen = true;
	return DICOMM_SUCCESS;
}
