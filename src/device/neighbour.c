/* SPDX-License-Identifier: BSD-3-Clause */
/* Maps the memory of a rank of this machine, if one of the two has a device. */
#include "src/device/neighbour.h"

#include <stdlib.h>
#include <string.h>

#include "src/accel/host/memory.h"
#include "src/base/log.h"
#include "src/core/member.h"
#include "src/device/device.h"
#include "src/message/memory_ref.h"
#include "src/memory/host_map.h"
#include "src/memory/in_process.h"

/* Map the staging buffers in the memory of a device of the same kind. */
static dicomm_result_t open_device(struct dicomm_comm *comm, int rank,
				   struct neighbour *n)
{
	const struct member_memory *other = &comm->memories[rank];
	struct device *dev = comm->dev;

	TRY(lease_take(&other->lease, &n->lease));
	n->stages_bytes = other->exported.bytes - other->exported.offset;
	TRY(dev->work->mem_import(dev->index, &other->exported, &n->ipc));
	n->stages = (uint8_t *)n->ipc + other->exported.offset;
	TRY(ipc_view_open(dev->ipc, &other->page, rank, comm->rank, &n->view));
	return DICOMM_SUCCESS;
}

static bool close_device(struct deferred *deferred)
{
	struct neighbour *n = (struct neighbour *)deferred;

	if (n->ipc)
		deferred->work->mem_unimport(deferred->index, n->ipc);
	if (n->lease >= 0)
		lease_release(n->lease);
	free(n);
	return true;
}

/* Find the memory of a rank of this process. */
static dicomm_result_t open_in_process(struct dicomm_comm *comm,
				       const struct member *other,
				       struct neighbour *n)
{
	char why[256];
	int index;

	n->in_process = in_process_find(other->in_process);
	n->apart = strcmp(other->device, comm->device) != 0;
	if (n->in_process && !n->apart)
		return DICOMM_SUCCESS;
	if (n->in_process &&
	    accel_find(other->device, &index, why, sizeof(why)))
		return comm->dev->work->reach(comm->index, index);
	log_set_last_error("no rank of this process shares it");
	return DICOMM_ERR_UNSUPPORTED;
}

/* Map staging buffers in host memory, which the other rank's device writes. */
static dicomm_result_t open_host(const struct member_memory *other,
				 struct neighbour *n)
{
	TRY(host_memory_import(&other->stages, &n->map));
	n->where = other->stages;
	n->stages = n->map;
	n->stages_bytes = other->stages.bytes;
	return DICOMM_SUCCESS;
}

dicomm_result_t neighbour_open(struct dicomm_comm *comm, int rank,
			       const struct accel_export *board)
{
	const struct member *other = &comm->members[rank];
	struct peer *peer = &comm->peers[rank];
	struct device *dev = comm->dev;
	dicomm_result_t status;

	peer->neighbour = calloc(1, sizeof(*peer->neighbour));
	if (!peer->neighbour)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "memory of a neighbour: out of memory");
	peer->neighbour->lease = -1;
	if (dev)
		peer->neighbour->deferred =
			(struct deferred){.work = dev->work,
					  .index = dev->index,
					  .go = close_device};
	if (!dev)
		status = open_host(&comm->memories[rank], peer->neighbour);
	else if (board)
		status = host_map_open(dev->work, dev->index, board,
				       &peer->neighbour->maps);
	else if (other->pid == comm->members[comm->rank].pid)
		status = open_in_process(comm, other, peer->neighbour);
	else
		status = open_device(comm, rank, peer->neighbour);
	if (status != DICOMM_SUCCESS)
		neighbour_close(comm, rank);
	return status;
}

void neighbour_close(struct dicomm_comm *comm, int rank)
{
	struct neighbour *n = comm->peers[rank].neighbour;

	if (!n)
		return;
	ipc_view_close(n->view);
	if (n->map)
		host_memory_unimport(&n->where, n->map);
	host_map_close(n->maps);
	in_process_put(n->in_process);
	comm->peers[rank].neighbour = NULL;
	if (n->ipc)
		deferred_run(&n->deferred);
	else
		close_device(&n->deferred);
}

void neighbour_close_all(struct dicomm_comm *comm)
{
	for (int r = 0; comm->peers && r < comm->ranks; r++)
		neighbour_close(comm, r);
}

void neighbour_refresh(struct dicomm_comm *comm)
{
	for (int r = 0; comm->shares && r < comm->ranks; r++) {
		const struct neighbour *n = comm->peers[r].neighbour;

		if (n && n->maps)
			host_map_refresh(n->maps);
	}
	if (comm->dev && comm->dev->ipc)
		ipc_refresh();
}

dicomm_result_t neighbour_check(const struct dicomm_comm *comm, const char *f,
				const char *name, const void *at, size_t bytes)
{
	struct accel_export where;
	size_t offset;
	int r = 0;

	if (host_memory_find(at, bytes, &where, &offset))
		return DICOMM_SUCCESS;
	while (!comm->peers[r].has_peer_access)
		r++;
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
		    "%s: %s %p is not memory of dicomm_mem_alloc: rank %d (%s) "
		    "reaches no other of rank %d (host), and staging is never",
		    f, name, at, r, comm->members[r].device, comm->rank);
}
