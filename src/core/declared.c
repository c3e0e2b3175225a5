/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/core/declared.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/core/topology.h"

/* Of a rank, for all others. */
struct declared {
	/* It reaches another host by a wire that does not say. */
	uint32_t unknown;
	uint32_t n;
	struct tp_adapter adapter[TP_ADAPTERS];
};

/* The wires by which it reaches other hosts: of those to a peer the first one
 * is taken. */
static unsigned wires_out(const struct dicomm_comm *comm)
{
	unsigned out = 0;

	for (int r = 0; r < comm->ranks; r++) {
		unsigned wires = comm->peers[r].wires;

		if (comm->members[r].host != comm->members[comm->rank].host &&
		    wires)
			out |= wires & -wires;
	}
	return out;
}

static void find(const struct dicomm_comm *comm, struct declared *d)
{
	unsigned out = wires_out(comm);

	memset(d, 0, sizeof(*d));
	for (unsigned i = 0; i < COMM_WIRES; i++) {
		const struct wire *w = &comm->wires[i];

		if (!(out >> i & 1))
			continue;
		/* Of two wires that say, who knows which carries how much. */
		if (d->n || !w->transport->adapters)
			d->unknown = 1;
		else
			d->n = w->transport->adapters(atomic_load(&w->device),
						      d->adapter);
	}
}

static bool is_among(const struct declared *d, uint64_t id)
{
	for (uint32_t i = 0; i < d->n; i++)
		if (d->adapter[i].id == id)
			return true;
	return false;
}

/* Does no lower rank of the node use it? */
static bool is_first(const struct dicomm_comm *comm, const struct declared *d,
		     int rank, uint64_t id)
{
	const uint32_t *node_of = comm->links->node_of;

	for (int r = 0; r < rank; r++)
		if (node_of[r] == node_of[rank] && is_among(&d[r], id))
			return false;
	return true;
}

static void add_rank(const struct dicomm_comm *comm, const struct declared *d,
		     int rank, struct links_class *c)
{
	for (uint32_t i = 0; i < d[rank].n; i++) {
		const struct tp_adapter *a = &d[rank].adapter[i];

		if (a->latency_ps > c->latency_ps)
			c->latency_ps = a->latency_ps;
		if (!is_first(comm, d, rank, a->id))
			continue;
		c->nic.up += a->bytes_per_s;
		c->nic.down += a->bytes_per_s;
	}
}

static dicomm_result_t adopt(struct dicomm_comm *comm, const struct declared *d)
{
	dicomm_result_t status;
	struct links *made;

	TRY(links_part(comm->links, (uint32_t)comm->ranks, NULL, &made));
	for (uint32_t n = 0; n < made->nodes; n++)
		made->class[n].nic = (struct links_pipe){0, 0};
	for (int r = 0; r < comm->ranks; r++)
		add_rank(comm, d, r, &made->class[made->node_of[r]]);
	/* Fast ones first. */
	status = links_finish(made);
	if (status == DICOMM_SUCCESS)
		topology_set(comm, made, "adapters declare");
	else
		links_free(made);
	return status;
}

dicomm_result_t declared_adopt(struct dicomm_comm *comm, bool *known)
{
	struct declared mine, *all = calloc((size_t)comm->ranks, sizeof(*all));
	dicomm_result_t status;

	if (!all)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: no memory for %d ranks",
			    comm->ranks);
	find(comm, &mine);
	status = control_allgather(comm->control, &mine, all, sizeof(mine),
				   comm->meet_ms);
	*known = true;
	for (int r = 0; r < comm->ranks; r++)
		*known &= !all[r].unknown;
	if (status == DICOMM_SUCCESS && *known)
		status = adopt(comm, all);
	free(all);
	return status;
}
