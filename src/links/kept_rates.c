/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/links/kept_rates.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/fork.h"
#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/core/member.h"
#include "src/links/topology.h"

/* Limit for sending one rank's rates to all, in bytes that rank 0 sends. */
#define SPREAD_MOST (UINT64_C(256) << 20)

struct kept {
	struct kept *next; /* older */
	uint32_t hosts;
	struct kept_rate rate[]; /* sorted by host */
};

static struct kept *newest;

/* The child of a fork measures for itself. */
static void forget(void)
{
	newest = NULL;
}

static int by_host(const void *a, const void *b)
{
	const struct kept_rate *x = a, *y = b;

	return x->host < y->host ? -1 : x->host > y->host;
}

static const struct kept_rate *find(const struct kept *k, uint64_t host)
{
	const struct kept_rate wanted = {.host = host};

	return bsearch(&wanted, k->rate, k->hosts, sizeof(*k->rate), by_host);
}

/* ---- the tables ---- */

/* Fills in `of` for all nodes; returns false if some host is not identified. */
static bool read_links(const struct links *l, struct kept_rate *of)
{
	for (uint32_t n = 0; n < l->nodes; n++) {
		uint32_t island = l->island_of[n], low = 0;

		while (l->island_of[low] != island)
			low++;
		of[n] = (struct kept_rate){.host = links_node(l, n)->host,
					   .nic = links_node(l, n)->nic,
					   .island = l->island[island]};
		of[n].island_of = of[low].host;
		if (!of[n].host)
			return false;
	}
	return true;
}

/* Sorts the rates. Ranks of one machine that count as hosts have the same. */
static void sort(struct kept *k)
{
	uint32_t n = 0;

	qsort(k->rate, k->hosts, sizeof(*k->rate), by_host);
	for (uint32_t i = 0; i < k->hosts; i++)
		if (!i || k->rate[i].host != k->rate[n - 1].host)
			k->rate[n++] = k->rate[i];
	k->hosts = n;
}

static bool covers(const struct kept *k, const struct kept *other)
{
	for (uint32_t i = 0; i < other->hosts; i++)
		if (!find(k, other->rate[i].host))
			return false;
	return true;
}

/* Makes it the newest table. Drops those that it covers, and the oldest ones
 * that are too many. */
static void insert(struct kept *k)
{
	struct kept **at = &newest, *other;
	uint32_t hosts = k->hosts;

	while ((other = *at)) {
		hosts += other->hosts;
		if (hosts <= KEPT_RATES_HOSTS && !covers(k, other)) {
			at = &other->next;
			continue;
		}
		hosts -= other->hosts;
		*at = other->next;
		free(other);
	}
	k->next = newest;
	newest = k;
}

void kept_rates_add(const struct links *l)
{
	struct kept *k = calloc(1, sizeof(*k) + l->nodes * sizeof(*k->rate));

	if (!k || !read_links(l, k->rate)) {
		free(k);
		return;
	}
	k->hosts = l->nodes;
	sort(k);
	fork_add(FORK_KEPT_RATES, forget);
	fork_lock(FORK_KEPT_RATES);
	insert(k);
	fork_unlock(FORK_KEPT_RATES);
}

/* Islands are named by a host that may not be among these. */
static void rename_islands(struct kept_rate *of, uint32_t nodes)
{
	for (uint32_t n = nodes; n--;) {
		uint32_t low = 0;

		while (of[low].island_of != of[n].island_of)
			low++;
		of[n].island_of = of[low].host;
	}
}

static bool look_in(const struct kept *k, const struct links *l,
		    struct kept_rate *of)
{
	for (uint32_t n = 0; n < l->nodes; n++) {
		const struct kept_rate *r = find(k, links_node(l, n)->host);

		if (!r)
			return false;
		of[n] = *r;
	}
	rename_islands(of, l->nodes);
	return true;
}

bool kept_rates_look(const struct links *l, struct kept_rate *of)
{
	bool found = false;

	fork_lock(FORK_KEPT_RATES);
	for (const struct kept *k = newest; k && !found; k = k->next)
		found = look_in(k, l, of);
	fork_unlock(FORK_KEPT_RATES);
	return found;
}

dicomm_result_t kept_rates_links(const struct links *old,
				 const struct kept_rate *of, struct links **out)
{
	struct links_pipe *island = calloc(old->nodes, sizeof(*island));
	struct links *l = NULL;
	dicomm_result_t status;

	if (!island)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "links: no memory for %u islands", old->nodes);
	status = links_part(old, old->ranks, NULL, &l);
	if (status != DICOMM_SUCCESS) {
		free(island);
		return status;
	}
	free(l->island);
	l->island = island;
	l->islands = l->nodes;
	/* An island has the number of its lowest node, until links_finish()
	 * leaves out those without nodes. */
	for (uint32_t n = 0; n < l->nodes; n++) {
		uint32_t low = 0;

		while (of[low].island_of != of[n].island_of)
			low++;
		island[n] = of[n].island;
		l->island_of[n] = low;
		l->class[n].nic = of[n].nic;
	}
	return links_finish(l, out);
}

/* ---- for a communicator ---- */

dicomm_result_t kept_rates_identify(struct dicomm_comm *comm,
				    const uint64_t *way)
{
	struct links *l;

	TRY(links_part(comm->links, comm->links->ranks, NULL, &l));
	/* The lowest rank of each host comes last. */
	for (uint32_t r = l->ranks; r--;) {
		uint64_t *host = &l->class[l->node_of[r]].host;

		*host = hash_bytes(HASH_START, &comm->members[r].host,
				   sizeof(comm->members[r].host));
		*host = hash_bytes(*host, &way[r], sizeof(way[r]));
		/* Not its link to others, but what its ranks have of it. */
		*host = hash_bytes(*host, &comm->apart, sizeof(comm->apart));
	}
	comm_set_links(comm, l);
	return DICOMM_SUCCESS;
}

/* What each rank tells of its kept rates. */
struct claim {
	uint64_t hash; /* 0: none */
	uint64_t sum;  /* of all rates */
};

static struct claim claim_of(const struct kept_rate *of, uint32_t nodes)
{
	struct claim c = {
		.hash = hash_bytes(HASH_START, of, nodes * sizeof(*of))};

	for (uint32_t n = 0; n < nodes; n++)
		c.sum += of[n].nic.up + of[n].nic.down;
	c.hash += !c.hash;
	return c;
}

/* Returns the rank whose rates all take; -1: none has any. *unlike becomes true
 * if some rank does not have these. */
static int choose(const struct claim *all, int ranks, bool *unlike)
{
	int best = -1;

	for (int r = 0; r < ranks; r++)
		if (all[r].hash && (best < 0 || all[r].sum > all[best].sum))
			best = r;
	*unlike = false;
	for (int r = 0; best >= 0 && r < ranks; r++)
		*unlike |= all[r].hash != all[best].hash;
	return best;
}

static bool may_spread(const struct dicomm_comm *comm)
{
	uint64_t ranks = (uint64_t)comm->ranks;

	return comm->links->nodes * sizeof(struct kept_rate) * ranks * ranks <=
	       SPREAD_MOST;
}

/* Replaces the rates by those of rank `from`. */
static dicomm_result_t spread(struct dicomm_comm *comm, int from,
			      struct kept_rate *of)
{
	size_t nodes = comm->links->nodes;
	struct kept_rate *all =
		calloc((size_t)comm->ranks, nodes * sizeof(*all));
	dicomm_result_t status;

	if (!all)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: no memory for the rates of %zu "
			    "hosts",
			    nodes);
	status = control_allgather(comm->control, of, all, nodes * sizeof(*all),
				   comm->join_ms);
	if (status == DICOMM_SUCCESS)
		memcpy(of, all + (size_t)from * nodes, nodes * sizeof(*of));
	free(all);
	return status;
}

static dicomm_result_t adopt(struct dicomm_comm *comm,
			     const struct kept_rate *of)
{
	struct links *made;

	TRY(kept_rates_links(comm->links, of, &made));
	topology_set(comm, made, "knows");
	comm->links_known = true;
	comm->links_declared = false;
	return DICOMM_SUCCESS;
}

/* `of` and `all` are room for the rates of all hosts and the claims of all
 * ranks. */
static dicomm_result_t agree(struct dicomm_comm *comm, struct kept_rate *of,
			     struct claim *all, bool *found)
{
	uint32_t nodes = comm->links->nodes;
	struct claim mine = {.hash = 0};
	bool unlike;
	int from;

	if (kept_rates_look(comm->links, of))
		mine = claim_of(of, nodes);
	TRY(control_allgather(comm->control, &mine, all, sizeof(mine),
			      comm->join_ms));
	from = choose(all, comm->ranks, &unlike);
	*found = from >= 0 && (!unlike || may_spread(comm));
	if (!*found)
		return DICOMM_SUCCESS;
	if (unlike)
		TRY(spread(comm, from, of));
	TRY(adopt(comm, of));
	if (all[from].hash != mine.hash)
		kept_rates_add(comm->links);
	return DICOMM_SUCCESS;
}

dicomm_result_t kept_rates_take(struct dicomm_comm *comm, bool *found)
{
	struct kept_rate *of = calloc(comm->links->nodes, sizeof(*of));
	struct claim *all = calloc((size_t)comm->ranks, sizeof(*all));
	dicomm_result_t status;

	if (of && all)
		status = agree(comm, of, all, found);
	else
		status = FAIL(DICOMM_ERR_NO_MEMORY,
			      "comm_init_rank: no memory for the rates of %u "
			      "hosts",
			      comm->links->nodes);
	free(of);
	free(all);
	return status;
}
