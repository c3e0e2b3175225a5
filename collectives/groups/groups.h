/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of ranks, and which rank of a group completes which part of a
 * reduction.
 *
 * A slice is cut into columns. In each group, every column has one owner, which
 * reduces what its group has of the column. A column is cut again into one
 * share for each group. The owner in that group reduces the share over all
 * groups. So every byte crosses the link between groups once, and several ranks
 * of a group divide that traffic among themselves.
 *
 * Shares follow the rates of links. Let there be n groups, and let a group have
 * the share x of a slice of S bytes. Then its link carries S (1 + (n - 2) x)
 * bytes up, and as many down. The shares are chosen so that the links of all
 * groups that have a share take equally long. A group that is too slow gets no
 * share.
 */
#ifndef DICOMM_COLLECTIVES_GROUPS_GROUPS_H
#define DICOMM_COLLECTIVES_GROUPS_GROUPS_H

#include "collectives/plan/algorithm.h"

enum groups_by {
	GROUPS_BY_RANK, /* each rank is its own group */
	GROUPS_BY_NODE,
	GROUPS_BY_ISLAND
};

struct groups {
	uint32_t n, columns;
	/* [n + 1]: the place on the path of the links where each group
	 * begins */
	uint32_t *first;
	uint32_t *owner; /* [group * columns + column]: the rank that owns it */
	uint32_t *cut;   /* [n + 1]: the part of a column where a share
			  * begins */
	uint32_t *of;    /* [rank]: its group */
	uint32_t parts;  /* how many parts a column is cut into */
};

/* Returns true if ranks can be grouped like this in a useful way. There must be
 * several nodes. Grouping by node needs a node with several ranks. Grouping by
 * island needs several islands, and fewer islands than nodes. */
bool groups_possible(const struct shape *s, enum groups_by by);
/* Finds the groups. They are the same for all ranks, so they are made once for
 * the links, which own them. Returns DICOMM_ERR_NO_MEMORY if there is no
 * memory. */
dicomm_result_t groups_find(const struct shape *s, enum groups_by by,
			    const struct groups **out);
/* Return the length of a message in parts of a column: of a message of group
 * k's share (a share may take several messages), and of the largest message of
 * all groups. */
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

/* Returns the group of rank s->rank. */
static inline uint32_t groups_mine(const struct groups *g,
				   const struct shape *s)
{
	return g->of[s->rank];
}

/* Returns the rank of member i of a group. */
static inline int groups_member(const struct groups *g, const struct shape *s,
				uint32_t group, uint32_t i)
{
	return (int)s->links->path[g->first[group] + i];
}

/* Returns the member of `group` that exchanges data with `rank` of another
 * group on behalf of all members. Different ranks have different agents. */
static inline int groups_agent(const struct groups *g, const struct shape *s,
			       uint32_t group, int rank)
{
	return groups_member(g, s, group,
			     s->links->place[rank] % groups_size(g, group));
}

/*
 * Divides `parts` among n links of the given rates (bytes per second; 0 means
 * unlimited). A link whose share is the fraction x carries 1 + k x units of
 * data. The shares are such that all links that get one take equally long. A
 * slow link may get none. Out: x[i], the parts of link i.
 */
void groups_share(uint32_t n, const uint64_t *rate, uint32_t k, uint32_t parts,
		  uint32_t *x);

/* A work() for algorithms that do within groups and between groups what
 * work_direct() does between ranks. The load on the links is not estimated
 * here; link_cost.h counts it from the steps. */
void groups_work(const struct shape *s, uint64_t bytes, struct work *w,
		 enum groups_by by);

/* Defines an algorithm from the build() of a file, for one way to group. */
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
		groups_work(s, bytes, w, by);                                  \
	}                                                                      \
	const struct algorithm kind##_##id = {                                 \
		.coll = collective,                                            \
		.name = #id,                                                   \
		.serves = kind##_##id##_serves,                                \
		.build = kind##_##id##_build,                                  \
		.work = kind##_##id##_work,                                    \
	};

#endif
