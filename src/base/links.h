/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The links of a communicator: which ranks share a node, which nodes share an
 * island, and the rates of the links between them.
 *
 * The links form a tree. Everything that leaves a node crosses its uplink, and
 * everything that enters it crosses its downlink. An island is a part of the
 * network behind a narrower link; it has an uplink and a downlink, too. Traffic
 * up and traffic down do not slow each other down. Nodes are stored by class,
 * never pair by pair. All numbers are integers, the same on all ranks.
 */
#ifndef DICOMM_BASE_LINKS_H
#define DICOMM_BASE_LINKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"

/* Rates of a link in bytes per second. 0: the link limits nothing. */
struct links_pipe {
	uint64_t up, down;
};

/* What the nodes of a class have in common. */
struct links_class {
	struct links_pipe nic;
	/* Rate of the adapter link that one rank can use, in bytes per second;
	 * 0: all of it. */
	uint64_t rank;
	/* Rate between two ranks of a node, in bytes per second; 0: as measured
	 * by rank 0. */
	uint64_t inside;
	/* Result bytes that one rank reduces per second; 0: as measured by rank
	 * 0. */
	uint64_t reduce;
	/* Latency of a message between a node of this class and another node.
	 */
	uint64_t latency_ps;
	/* Which host this is, and what carries its messages to others
	 * (src/links/kept_rates.h). 0: its rates are not kept. */
	uint64_t host;
};

/* A result that was computed from the links, kept for the next time. */
struct links_memo {
	const void
		*what; /* the object for which it was computed; NULL: empty */
	uint64_t key;
	uint64_t value[8];
};

#define LINKS_MEMOS 128
#define LINKS_GROUPS 3

/* Each struct links has its own lock. A child of fork() never uses a lock that
 * another thread held at the fork, because it makes links of its own. */
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
	/* [rank]; nodes are numbered in the order of their lowest ranks. */
	uint32_t *node_of;
	uint32_t *ranks_of; /* [node]: number of its ranks */
	/* The path is an order of all ranks in which the ranks of a node are
	 * neighbours, and so are those of an island. Within an island, fast
	 * nodes come first. */
	uint32_t *path;  /* [place]: rank */
	uint32_t *place; /* [rank]: place on the path */
	/* node_begin[nodes + 1]: the place where each node begins, and the end
	 * of the path. island_begin[islands + 1]: where each island begins
	 * among those nodes, and their end. */
	uint32_t *node_begin, *island_begin;
	/* Used by collectives/select/link_cost.c, only for results that can be
	 * computed again. */
	struct links_memos *memos;
	/* Used by collectives/groups/groups.c. Each element is one allocation,
	 * or NULL if it has not been made yet. */
	_Atomic(void *) *groups; /* [LINKS_GROUPS] */
};

/* Allocates links of that size. Classes, nodes and ranks are all 0. Returns
 * NULL if there is no memory. */
struct links *links_create(uint32_t ranks, uint32_t nodes, uint32_t classes,
			   uint32_t islands);
/* To be called when all other fields are filled in. Computes ranks_of and the
 * path. Drops islands without nodes. *out becomes the links; without memory,
 * frees them and returns DICOMM_ERR_NO_MEMORY. */
dicomm_result_t links_finish(struct links *l, struct links **out);
void links_free(struct links *l);
/* Makes the links of some ranks of `whole`, with a class for each node.
 * was[rank] is the rank in `whole`; if was is NULL, the ranks are the same.
 * Returns DICOMM_ERR_NO_MEMORY if there is no memory. */
dicomm_result_t links_part(const struct links *whole, uint32_t ranks,
			   const uint32_t *was, struct links **out);
/* Returns a hash of everything that affects plans. It is never 0. */
uint64_t links_hash(const struct links *l);

/* Returns i such that begin[i] <= place < begin[i + 1], for i below n. */
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

/* Returns true if the ranks are on several nodes. Otherwise there are no links
 * to follow. */
static inline bool links_matter(const struct links *l)
{
	return l && l->nodes > 1;
}

/* Returns the slower of two rates, where 0 means unlimited. */
static inline uint64_t links_slower(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

/* Returns the rate at which all ranks of a node together can send, and also
 * receive, in bytes per second. */
static inline uint64_t links_way(const struct links *l, uint32_t node)
{
	const struct links_class *c = links_node(l, node);

	return links_slower(links_slower(c->nic.up, c->nic.down),
			    c->rank * l->ranks_of[node]);
}

#endif
