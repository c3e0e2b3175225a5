/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/groups/groups.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "src/base/log.h"

/* A share is a whole number of parts of a column. A column has about PARTS_FEW
 * parts, and at least PARTS_EACH for each group. A message is at most PARTS_FEW
 * parts, because a part is at least a cache line and slots may be as small as 4
 * KiB. */
#define PARTS_FEW 64
#define PARTS_EACH 4
/* If members of a group have different rates, a group has this many columns for
 * each member, up to COLUMNS_MOST in all. */
#define COLUMNS_EACH 4
#define COLUMNS_MOST 64
/* Stands for an unlimited rate, in bytes per second. */
#define FASTEST (UINT64_C(1) << 44)

typedef unsigned __int128 wide;

static uint64_t limit(uint64_t rate)
{
	return rate && rate < FASTEST ? rate : FASTEST;
}

/*
 * A link with rate r gets the share (T r - 1) / k, if that is positive, where T
 * is the time that all links take. T is the least time for which these shares
 * sum up to 1. If n links with rates that sum up to B get a share, T = (k + n)
 * / B.
 */
void groups_share(uint32_t n, const uint64_t *rate, uint32_t k, uint32_t parts,
		  uint32_t *x)
{
	uint32_t takers = n, given = 0;
	wide sum = 0;
	bool fewer = k > 0;

	for (uint32_t i = 0; i < n; i++)
		sum += limit(rate[i]);
	while (fewer) {
		wide least = sum / (k + takers), left = 0;
		uint32_t stay = 0;

		for (uint32_t i = 0; i < n; i++) {
			if (limit(rate[i]) > least) {
				left += limit(rate[i]);
				stay++;
			}
		}
		fewer = stay < takers;
		takers = stay;
		sum = left;
	}
	for (uint32_t i = 0; i < n; i++) {
		wide r = limit(rate[i]);

		x[i] = 0;
		if (k == 0)
			x[i] = parts / n;
		else if (r * (k + takers) > sum)
			x[i] = (uint32_t)((r * (k + takers) - sum) * parts /
					  (sum * k));
		given += x[i];
	}
	/* Links that have a share take turns in getting the parts that rounding
	 * has left. */
	for (uint32_t i = 0; given < parts; i = (i + 1) % n) {
		if (x[i] > 0 || k == 0) {
			x[i]++;
			given++;
		}
	}
}

static uint32_t group_of(const struct links *l, uint32_t rank,
			 enum groups_by by)
{
	uint32_t node = l->node_of[rank];

	if (by == GROUPS_BY_RANK)
		return rank;
	return by == GROUPS_BY_NODE ? node : l->island_of[node];
}

bool groups_possible(const struct shape *s, enum groups_by by)
{
	const struct links *l = s->links;

	if (!links_matter(l))
		return false;
	if (by == GROUPS_BY_RANK)
		return true;
	if (by == GROUPS_BY_NODE)
		return l->nodes < l->ranks;
	return l->islands > 1 && l->islands < l->nodes;
}

/* The rate of a rank: an equal part of what all ranks of its node can send. */
static uint64_t rank_rate(const struct links *l, uint32_t rank)
{
	uint32_t node = l->node_of[rank];

	return limit(links_way(l, node)) / l->ranks_of[node];
}

static uint64_t group_rate(const struct groups *g, const struct links *l,
			   uint32_t group, enum groups_by by)
{
	uint32_t rank = l->path[g->first[group]], node = l->node_of[rank];
	const struct links_pipe *link = &l->island[l->island_of[node]];
	uint64_t sum = 0;

	if (by == GROUPS_BY_RANK)
		return rank_rate(l, rank);
	if (by == GROUPS_BY_NODE)
		return links_way(l, node);
	for (uint32_t i = g->first[group]; i < g->first[group + 1]; i++)
		sum += rank_rate(l, l->path[i]);
	return links_slower(links_slower(link->up, link->down), sum);
}

static bool begins(const struct links *l, uint32_t place, enum groups_by by)
{
	return place == 0 || group_of(l, l->path[place], by) !=
				     group_of(l, l->path[place - 1], by);
}

/*
 * Computes the number of groups and of columns. There are as many columns as
 * the largest group has members, so that each of these owns one. If members of
 * an island have different rates, there are more columns, so that the number
 * that a member owns can follow its rate.
 */
static void count(const struct links *l, enum groups_by by, uint32_t *n,
		  uint32_t *columns)
{
	uint32_t most = 1, first = 0;
	bool alike = true;

	*n = 0;
	for (uint32_t i = 0; i < l->ranks; i++) {
		if (begins(l, i, by)) {
			first = i;
			++*n;
		}
		if (i + 1 - first > most)
			most = i + 1 - first;
		alike &= by != GROUPS_BY_ISLAND ||
			 rank_rate(l, l->path[i]) ==
				 rank_rate(l, l->path[first]);
	}
	*columns = most;
	if (!alike && most * COLUMNS_EACH <= COLUMNS_MOST)
		*columns = most * COLUMNS_EACH;
}

/* Allocates the struct together with all its arrays. Returns NULL if there is
 * no memory. */
static struct groups *create(const struct links *l, enum groups_by by)
{
	size_t ranks = l->ranks, owners;
	struct groups *g;
	uint32_t n, columns;

	count(l, by, &n, &columns);
	owners = (size_t)n * columns;
	g = malloc(sizeof(*g) +
		   (2 * (n + (size_t)1) + ranks + owners) * sizeof(*g->first));
	if (!g)
		return NULL;
	g->n = n;
	g->columns = columns;
	g->first = (uint32_t *)(g + 1);
	g->cut = g->first + n + 1;
	g->of = g->cut + n + 1;
	g->owner = g->of + ranks;
	return g;
}

/* Fills in first[] and of[]. */
static void find_members(struct groups *g, const struct links *l,
			 enum groups_by by)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < l->ranks; i++) {
		if (begins(l, i, by))
			g->first[k++] = i;
		g->of[l->path[i]] = k - 1;
	}
	g->first[k] = l->ranks;
}

static void find_owners(struct groups *g, const struct links *l, uint32_t k,
			uint64_t *rate, uint32_t *x)
{
	uint32_t n = groups_size(g, k), column = 0;

	for (uint32_t i = 0; i < n; i++)
		rate[i] = rank_rate(l, l->path[g->first[k] + i]);
	groups_share(n, rate, n - 1, g->columns, x);
	for (uint32_t i = 0; i < n; i++)
		while (x[i]-- > 0)
			g->owner[(size_t)k * g->columns + column++] =
				l->path[g->first[k] + i];
}

/* rate and x have room for one entry per rank. */
static void find_shares(struct groups *g, const struct links *l,
			enum groups_by by, uint64_t *rate, uint32_t *x)
{
	uint32_t each = PARTS_FEW / g->n;

	g->parts = g->n * (each > PARTS_EACH ? each : PARTS_EACH);
	for (uint32_t k = 0; k < g->n; k++)
		rate[k] = group_rate(g, l, k, by);
	groups_share(g->n, rate, g->n - 2, g->parts, x);
	g->cut[0] = 0;
	for (uint32_t k = 0; k < g->n; k++)
		g->cut[k + 1] = g->cut[k] + x[k];
}

static dicomm_result_t make(const struct links *l, enum groups_by by,
			    struct groups **out)
{
	uint64_t *rate = malloc(l->ranks * sizeof(*rate));
	uint32_t *x = malloc(l->ranks * sizeof(*x));
	struct groups *g = create(l, by);
	bool ok = rate && x && g;

	if (ok) {
		find_members(g, l, by);
		for (uint32_t k = 0; k < g->n; k++)
			find_owners(g, l, k, rate, x);
		find_shares(g, l, by, rate, x);
		*out = g;
	} else {
		free(g);
	}
	free(rate);
	free(x);
	return ok ? DICOMM_SUCCESS
		  : FAIL(DICOMM_ERR_NO_MEMORY,
			 "no memory for groups of %u ranks", l->ranks);
}

dicomm_result_t groups_find(const struct shape *s, enum groups_by by,
			    const struct groups **out)
{
	_Atomic(void *) *at = &s->links->groups[by];
	void *known = atomic_load_explicit(at, memory_order_acquire);
	struct groups *g;

	_Static_assert(GROUPS_BY_ISLAND < LINKS_GROUPS, "no room for them");
	if (!known) {
		TRY(make(s->links, by, &g));
		/* Another thread may have made the groups meanwhile; keep the
		 * first ones. */
		if (atomic_compare_exchange_strong_explicit(
			    at, &known, g, memory_order_acq_rel,
			    memory_order_acquire))
			known = g;
		else
			free(g);
	}
	*out = known;
	return DICOMM_SUCCESS;
}

uint32_t groups_message(const struct groups *g, uint32_t k)
{
	uint32_t share = g->cut[k + 1] - g->cut[k];
	uint32_t messages = (share + PARTS_FEW - 1) / PARTS_FEW;

	return messages ? (share + messages - 1) / messages : 0;
}

uint32_t groups_largest_message(const struct groups *g)
{
	uint32_t most = 0;

	for (uint32_t k = 0; k < g->n; k++)
		if (groups_message(g, k) > most)
			most = groups_message(g, k);
	return most;
}

void groups_work(const struct shape *s, uint64_t bytes, struct work *w,
		 enum groups_by by)
{
	const struct groups *g;

	work_direct(s, bytes, w);
	if (by == GROUPS_BY_NODE)
		w->near_hops = w->hops;
	if (by != GROUPS_BY_RANK)
		w->hops *= 2;
	/* Only an all-reduce cuts columns and shares. */
	if (s->coll == COLL_ALLREDUCE && s->links &&
	    groups_find(s, by, &g) == DICOMM_SUCCESS)
		w->message_bytes = bytes / (g->columns * g->parts) *
					   groups_largest_message(g) +
				   64;
}
