/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of ranks, and who of them completes which part of a reduction.
 *
 * A slice is cut into columns. In each group one rank owns a column: it brings
 * together what its group has of it. A column is cut in turn into one share for
 * each group, whose owner brings together what all groups have of it. So what
 * crosses the way between groups crosses it once, over several ranks of each
 * group. Shares follow rates: with n groups and a share of x, the way of a
 * group carries S (1 + (n - 2) x) bytes of S up, and as many down, which is as
 * long for all that have a share, and no longer for those that are too slow for
 * one.
 */
#ifndef DICOMM_COLLECTIVES_GROUPS_GROUPS_H
#define DICOMM_COLLECTIVES_GROUPS_GROUPS_H

#include "collectives/plan/algorithm.h"

enum groups_by {
	GROUPS_BY_RANK, /* each rank by itself */
	GROUPS_BY_NODE,
	GROUPS_BY_ISLAND
};

struct groups {
	uint32_t n, columns;
	uint32_t *first; /* [n + 1]: those on the path of links from here on */
	uint32_t *owner; /* [group * columns + column]: rank */
	uint32_t *cut;   /* [n + 1]: where the shares of a column begin */
	uint32_t *of;    /* [rank]: its group */
	uint32_t parts;  /* of a column */
};

/* Is that a way to group these ranks: several groups, and, but for that by
 * rank, some with several ranks, others than by node? */
bool groups_possible(const struct shape *s, enum groups_by by);
/* The same for all ranks, so they are made once, and belong to the links.
 * ERR_NO_MEMORY. */
dicomm_result_t groups_find(const struct shape *s, enum groups_by by,
			    const struct groups **out);
/* In parts of a column: a message of group k's share, which may take several;
 * the largest one of all groups. */
uint32_t groups_message(const struct groups *g, uint32_t k);
uint32_t groups_largest_message(const struct groups *g);

static inline int groups_owner(const struct groups *g, uint32_t group,
			       uint32_t column)
{
	return (int)g->owner[(size_t)group * g->columns + column];
}

static inline uint32_t groups_size(const struct groups *g, uint32_t group)
{
	return g->first[group + 1] - g->first[group];
}

/* The group of the shape's rank. */
static inline uint32_t groups_mine(const struct groups *g,
				   const struct shape *s)
{
	return g->of[s->rank];
}

/* Member i of a group. */
static inline int groups_member(const struct groups *g, const struct shape *s,
				uint32_t group, uint32_t i)
{
	return (int)s->links->path[g->first[group] + i];
}

/* Who of a group passes on what another rank sends to it, or gets from it:
 * for each rank another one. */
static inline int groups_agent(const struct groups *g, const struct shape *s,
			       uint32_t group, int rank)
{
	return groups_member(g, s, group,
			     s->links->place[rank] % groups_size(g, group));
}

/*
 * Cut `parts` by n rates (bytes per second; 0: unlimited) so that a way that
 * carries 1 + k x of its share x of all is as long for all that get one: x[i]
 * parts for i, which may be none.
 */
void groups_share(uint32_t n, const uint64_t *rate, uint32_t k, uint32_t parts,
		  uint32_t *x);

/* An algorithm of build() and work() of the file, for one way to group. */
#define GROUPS_ALGORITHM(kind, id, collective, by)                             \
	static bool kind##_##id##_serves(const struct shape *s)                \
	{                                                                      \
		return groups_possible(s, by);                                 \
	}                                                                      \
	static void kind##_##id##_build(struct plan *p, const struct shape *s) \
	{                                                                      \
		build(p, s, by);                                               \
	}                                                                      \
	static void kind##_##id##_work(const struct shape *s, uint64_t bytes,  \
				       struct work *w)                         \
	{                                                                      \
		work(s, bytes, w, by);                                         \
	}                                                                      \
	const struct algorithm kind##_##id = {                                 \
		.coll = collective,                                            \
		.name = #id,                                                   \
		.serves = kind##_##id##_serves,                                \
		.build = kind##_##id##_build,                                  \
		.work = kind##_##id##_work,                                    \
	};

#endif
