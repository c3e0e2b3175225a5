/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which ranks' devices reach each other's memory; who has to stage, and may.
 *
 * Devices of one kind on one machine map each other's memory. What one rank
 * sends to the other lies in stages in the memory of its own device, from where
 * the other's kernels and copies read it. These stages are mapped when the
 * communicator begins: to map what a user sends, when it is sent, could wait
 * for a stream that is held.
 */
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/core/device.h"

static bool is_same_kind(const struct member *a, const struct member *b)
{
	size_t n = strcspn(a->device, ":");

	return strcspn(b->device, ":") == n && !memcmp(a->device, b->device, n);
}

/* Does it pay to try? All ranks know alike. */
static bool may_map(const struct member *a, const struct member *b)
{
	if (!a->near_at || !b->near_at || a->host != b->host ||
	    !is_same_kind(a, b))
		return false;
	return a->pid != b->pid || !strcmp(a->device, b->device);
}

/* Make memory of that rank's device reachable for this rank's. */
static void map(struct dicomm_comm *comm, int rank)
{
	const struct member *me = &comm->members[comm->rank];
	const struct member *other = &comm->members[rank];
	struct peer *peer = &comm->peers[rank];
	struct device *dev = comm->dev;
	void *base = NULL;

	if (other->pid == me->pid) {
		peer->near = (uint8_t *)(uintptr_t)other->near_at;
		return;
	}
	if (dev->work->mem_import(dev->index, &other->near, &base) !=
	    DICOMM_SUCCESS) {
		log_info("rank %d (%s) does not map memory of rank %d (%s): "
			 "%s",
			 comm->rank, me->device, rank, other->device,
			 log_last_error());
		return;
	}
	peer->near_base = base;
	peer->near = (uint8_t *)base + other->near.offset;
}

void reach_unmap(struct dicomm_comm *comm)
{
	for (int r = 0; comm->peers && r < comm->ranks; r++) {
		struct peer *peer = &comm->peers[r];

		if (peer->near_base)
			comm->dev->work->mem_unimport(comm->dev->index,
						      peer->near_base);
		peer->near_base = peer->near = NULL;
	}
}

/* mapped[a * ranks + b]: rank a maps what rank b sends. */
static dicomm_result_t map_all(struct dicomm_comm *comm, uint8_t *mapped)
{
	unsigned n = (unsigned)comm->ranks;
	bool any = false;
	uint8_t *mine;
	dicomm_result_t status;

	for (unsigned a = 0; a < n; a++)
		for (unsigned b = 0; b < n; b++)
			any |= may_map(&comm->members[a], &comm->members[b]);
	if (!any)
		return DICOMM_SUCCESS;
	mine = calloc(n, 1);
	if (!mine)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: out of memory");
	for (unsigned r = 0; r < n; r++) {
		if (!may_map(&comm->members[comm->rank], &comm->members[r]))
			continue;
		map(comm, (int)r);
		mine[r] = comm->peers[r].near != NULL;
	}
	status = control_allgather(comm->control, mine, mapped, n,
				   comm->meet_ms);
	free(mine);
	return status;
}

/* Two ranks whose buffers the wires reach, or that map each other's, need no
 * staging. */
static bool is_staged(const struct dicomm_comm *comm, const uint8_t *mapped,
		      int a, int b)
{
	size_t n = (size_t)comm->ranks, x = (size_t)a, y = (size_t)b;

	if (comm->members[a].on_host && comm->members[b].on_host)
		return false;
	return !mapped[x * n + y] || !mapped[y * n + x];
}

static const char *why_staged(const struct member *a, const struct member *b)
{
	if (a->host != b->host)
		return "no transport to other machines reaches the memory of "
		       "devices";
	if (!is_same_kind(a, b))
		return "neither device maps memory of the other";
	if (a->pid == b->pid)
		return "devices of one process do not map each other's memory";
	return "the devices do not map each other's memory";
}

static dicomm_result_t refuse(const struct dicomm_comm *comm, int a, int b)
{
	const struct member *x = &comm->members[a], *y = &comm->members[b];

	return FAIL(DICOMM_ERR_NO_PATH,
		    "no direct path between rank %d (%s) and rank %d (%s): "
		    "%s; and rank %d has staging never",
		    a, x->device, b, y->device, why_staged(x, y),
		    x->never_staged ? a : b);
}

static void announce(const struct dicomm_comm *comm, int a, int b, int pairs)
{
	const struct member *x = &comm->members[a], *y = &comm->members[b];

	if (comm->rank != a)
		return;
	comm_listen(comm);
	log_warn("%s: between rank %d (%s) and rank %d (%s)%s data passes "
		 "through host memory: %s (DICOMM_STAGING=never refuses that)",
		 comm->name, a, x->device, b, y->device,
		 pairs > 1 ? " and other pairs" : "", why_staged(x, y));
	comm_listen(NULL);
}

/* All ranks come to the same end. */
static dicomm_result_t decide(struct dicomm_comm *comm, const uint8_t *mapped)
{
	int first = -1, second = -1, pairs = 0;

	for (int a = 0; a < comm->ranks; a++)
		for (int b = a + 1; b < comm->ranks; b++) {
			if (!is_staged(comm, mapped, a, b))
				continue;
			if (comm->members[a].never_staged ||
			    comm->members[b].never_staged)
				return refuse(comm, a, b);
			if (pairs++)
				continue;
			first = a;
			second = b;
		}
	if (pairs)
		announce(comm, first, second, pairs);
	return DICOMM_SUCCESS;
}

static bool all_on_host(const struct dicomm_comm *comm)
{
	for (int r = 0; r < comm->ranks; r++)
		if (!comm->members[r].on_host)
			return false;
	return true;
}

dicomm_result_t reach_agree(struct dicomm_comm *comm)
{
	size_t n = (size_t)comm->ranks;
	uint8_t *mapped;
	dicomm_result_t status;

	/* Then no pair has to be looked at. */
	if (all_on_host(comm))
		return DICOMM_SUCCESS;
	mapped = calloc(n, n);
	if (!mapped)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: no memory for %zu ranks", n);
	status = map_all(comm, mapped);
	if (status == DICOMM_SUCCESS)
		status = decide(comm, mapped);
	for (int r = 0; status == DICOMM_SUCCESS && r < comm->ranks; r++) {
		struct peer *peer = &comm->peers[r];

		peer->staged = is_staged(comm, mapped, comm->rank, r);
		/* Both or none: a pair has one way. */
		peer->is_near =
			comm->dev && !comm->dev->shares_host && !peer->staged;
	}
	free(mapped);
	return status;
}
