/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/links/adapter_rates.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/base/texts.h"
#include "src/links/topology.h"

/* Returns the transports by which this rank reaches other nodes, as a mask. For
 * each peer that is the lowest-numbered one that both ranks have. */
static unsigned transports_out(const struct dicomm_comm *comm)
{
	const uint32_t *node_of = comm->links->node_of;
	unsigned out = 0;

	for (int r = 0; r < comm->ranks; r++) {
		unsigned mask = comm->ways[r];

		if (node_of[r] != node_of[comm->rank] && mask)
			out |= mask & -mask;
	}
	return out;
}

/* Returns the hash of the address, without the port, that this rank listens
 * on. */
static uint64_t listens_on(const struct dicomm_comm *comm)
{
	const char *address = texts_get(comm->recoveries, (uint32_t)comm->rank);
	const char *port = strrchr(address, ':');

	return hash_bytes(HASH_START, address,
			  port ? (size_t)(port - address) : 0);
}

static void find(const struct dicomm_comm *comm, struct adapter_rates *d)
{
	unsigned out = transports_out(comm);

	memset(d, 0, sizeof(*d));
	d->way = listens_on(comm);
	for (unsigned i = 0; i < TP_TRANSPORTS; i++) {
		const struct comm_transport *w = &comm->transports[i];

		if (!(out >> i & 1))
			continue;
		d->way = hash_bytes(d->way, w->transport->name,
				    strlen(w->transport->name) + 1);
		/* If two transports declare rates, it is unknown which one
		 * carries how much. */
		if (d->n || !w->transport->adapters)
			d->unknown = 1;
		else
			d->n = w->transport->adapters(atomic_load(&w->device),
						      d->adapter);
	}
	for (uint32_t i = 0; i < d->n; i++)
		d->way = hash_bytes(d->way, &d->adapter[i].id,
				    sizeof(d->adapter[i].id));
}

static bool is_among(const struct adapter_rates *d, uint64_t id)
{
	for (uint32_t i = 0; i < d->n; i++)
		if (d->adapter[i].id == id)
			return true;
	return false;
}

/* Returns true if this is the lowest rank of its node that uses the adapter. */
static bool is_first(const uint32_t *node_of, const struct adapter_rates *d,
		     uint32_t rank, uint64_t id)
{
	for (uint32_t r = 0; r < rank; r++)
		if (node_of[r] == node_of[rank] && is_among(&d[r], id))
			return false;
	return true;
}

/* Adds the adapters of a rank to the uplink of its host. Returns how much they
 * add, in bytes per second. */
static uint64_t add_rank(struct links *l, const struct adapter_rates *d,
			 uint32_t rank)
{
	struct links_class *c = &l->class[l->node_of[rank]];
	uint64_t sum = 0, own = 0;

	for (uint32_t i = 0; i < d[rank].n; i++) {
		const struct tp_adapter *a = &d[rank].adapter[i];

		if (a->latency_ps > c->latency_ps)
			c->latency_ps = a->latency_ps;
		own += a->bytes_per_s;
		if (is_first(l->node_of, d, rank, a->id))
			sum += a->bytes_per_s;
	}
	c->nic.up += sum;
	c->nic.down += sum;
	c->rank = links_slower(c->rank, own);
	return sum;
}

dicomm_result_t adapter_rates_links(const struct links *old,
				    const struct adapter_rates *d,
				    struct links **out, bool *summed)
{
	struct links *l;

	TRY(links_part(old, old->ranks, NULL, &l));
	for (uint32_t n = 0; n < l->nodes; n++) {
		l->class[n].nic = (struct links_pipe){0, 0};
		l->class[n].rank = 0;
	}
	*summed = false;
	for (uint32_t r = 0; r < l->ranks; r++) {
		uint64_t sum = add_rank(l, d, r);

		*summed |= sum && l->class[l->node_of[r]].nic.up > sum;
	}
	/* A rank that can use the whole uplink has no share of its own. */
	for (uint32_t n = 0; n < l->nodes; n++)
		if (l->class[n].rank == l->class[n].nic.up)
			l->class[n].rank = 0;
	/* Sorts the path again: fast nodes first. */
	return links_finish(l, out);
}

static dicomm_result_t adopt(struct dicomm_comm *comm,
			     const struct adapter_rates *d)
{
	struct links *made;

	TRY(adapter_rates_links(comm->links, d, &made, &comm->links_summed));
	topology_set(comm, made, "adapters declare");
	comm->links_declared = true;
	return DICOMM_SUCCESS;
}

/* Returns true if an adapter is software. What it declares is not the rate of a
 * link. */
static bool has_software(const struct adapter_rates *d)
{
	for (uint32_t i = 0; i < d->n; i++)
		if (d->adapter[i].software)
			return true;
	return false;
}

dicomm_result_t adapter_rates_adopt(struct dicomm_comm *comm, bool *known,
				    uint64_t *way)
{
	struct adapter_rates mine,
		*all = calloc((size_t)comm->ranks, sizeof(*all));
	bool unknown = false, believed = true;
	dicomm_result_t status;

	if (!all)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: no memory for %d ranks",
			    comm->ranks);
	find(comm, &mine);
	status = control_allgather(comm->control, &mine, all, sizeof(mine),
				   comm->join_ms);
	for (int r = 0; r < comm->ranks; r++) {
		unknown |= all[r].unknown != 0;
		believed &= !has_software(&all[r]);
		way[r] = all[r].way;
	}
	*known = !unknown && believed;
	if (status == DICOMM_SUCCESS && !unknown)
		status = adopt(comm, all);
	free(all);
	return status;
}
