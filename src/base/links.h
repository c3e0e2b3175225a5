/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The links of a communicator: which ranks share a node, which nodes an island,
 * and what the pipes between them carry.
 *
 * The pipes form a tree. All that leaves a node crosses its way up, all that
 * enters it its way down; and likewise for an island, a part of the network
 * behind a narrower way. Up and down do not disturb each other. Nodes are
 * stored by class, never pair by pair. Plain numbers, the same on all ranks.
 */
#ifndef DICOMM_BASE_LINKS_H
#define DICOMM_BASE_LINKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"

/* Bytes per second; 0: more than anything that leads there. */
struct links_pipe {
	uint64_t up, down;
};

/* What nodes have in common. */
struct links_class {
	struct links_pipe nic;
	uint64_t rank;   /* of each rank's part in that; 0: it may have all */
	uint64_t inside; /* between two of its ranks; 0: as rank 0's */
	uint64_t reduce; /* result bytes of one rank; 0: as rank 0's */
	uint64_t latency_ps; /* to another node, and back out of it */
};

/* What was worked out from links and would be worked out again. */
struct links_memo {
	const void *what; /* NULL: nothing yet */
	uint64_t key;
	uint64_t value[8];
};

#define LINKS_MEMOS 128
#define LINKS_GROUPS 3

/* A lock for each: who forks while another thread has it makes links of its
 * own. */
struct links_memos {
	pthread_mutex_t lock;
	struct links_memo memo[LINKS_MEMOS];
};

struct links {
	uint32_t ranks, nodes, classes, islands;
	struct links_class *class; /* [classes] */
	struct links_pipe *island; /* [islands] */
	uint32_t *class_of;        /* [node] */
	uint32_t *island_of;       /* [node] */
	/* [rank]; nodes are in the order of their lowest ranks */
	uint32_t *node_of;
	uint32_t *ranks_of; /* [node]: how many */
	/* Ranks so that those of a node, and of an island, are neighbours, and
	 * in an island those of fast nodes come first. */
	uint32_t *path;  /* [place] */
	uint32_t *place; /* [rank] */
	/* Places on it where nodes begin, and its end: [nodes + 1]. Of those,
	 * where islands begin, and their end: [islands + 1]. */
	uint32_t *node_begin, *island_begin;
	/* Of collectives/select/link_cost.c; never what could not be found
	 * again. */
	struct links_memos *memos;
	/* Of collectives/groups/groups.c, each in one piece; NULL: not yet
	 * made. */
	_Atomic(void *) *groups; /* [LINKS_GROUPS] */
};

/* Room for that; classes, nodes and ranks are 0 everywhere. NULL: no memory. */
struct links *links_create(uint32_t ranks, uint32_t nodes, uint32_t classes,
			   uint32_t islands);
/* After all else is filled in: ranks_of, and all of the path. Islands in which
 * there are no nodes are dropped. */
dicomm_result_t links_finish(struct links *l);
void links_free(struct links *l);
/* The links of some of its ranks, was[rank] being the rank there (NULL: of all
 * of them), with a class for each node. ERR_NO_MEMORY. */
dicomm_result_t links_part(const struct links *whole, uint32_t ranks,
			   const uint32_t *was, struct links **out);
/* Of all that matters to plans; never 0. */
uint64_t links_hash(const struct links *l);

/* Which of n neighbours is at a place, where begin[i] <= place < begin[i + 1].
 */
static inline uint32_t links_find(const uint32_t *begin, uint32_t n,
				  uint32_t place)
{
	uint32_t low = 0;

	while (n > 1) {
		uint32_t half = n / 2;

		if (begin[low + half] <= place)
			low += half;
		n -= half;
	}
	return low;
}

static inline const struct links_class *links_node(const struct links *l,
						   uint32_t node)
{
	return &l->class[l->class_of[node]];
}

/* Do its ranks sit on several nodes? Else there are no links to follow. */
static inline bool links_matter(const struct links *l)
{
	return l && l->nodes > 1;
}

/* Of two rates, of which 0 is the highest. */
static inline uint64_t links_slower(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

/* What all ranks of a node together can send, and receive. */
static inline uint64_t links_way(const struct links *l, uint32_t node)
{
	const struct links_class *c = links_node(l, node);

	return links_slower(links_slower(c->nic.up, c->nic.down),
			    c->rank * l->ranks_of[node]);
}

#endif
