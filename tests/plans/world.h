/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A simulated communicator for one call: buffers of all ranks with known
 * contents, the plans of an algorithm, and the definition of each collective
 * to compare with.
 */
#ifndef DICOMM_TESTS_PLANS_WORLD_H
#define DICOMM_TESTS_PLANS_WORLD_H

#include "tests/plans/sim.h"

enum { WORLD_MAX_RANKS = 17 };

struct world {
	const struct algorithm *algorithm;
	int ranks, root;
	size_t count;      /* elements of a block; of the longest in a v */
	uint32_t in_place; /* bit r: rank r is */
	bool prescale, postdivide;
	bool doubles;              /* elements are doubles, added */
	const struct links *links; /* NULL: one node; not owned */
	struct sim sim;
	/* private to world.c */
	struct sim_rank rank[WORLD_MAX_RANKS];
	uint64_t *memory[WORLD_MAX_RANKS][2];
	size_t *len[WORLD_MAX_RANKS][2], *off[WORLD_MAX_RANKS][2];
	size_t total[WORLD_MAX_RANKS][2];
	size_t like_len[WORLD_MAX_RANKS];
};

/* Ranks on nodes, and those on islands, in any order and of any rates. */
struct links *world_links(int ranks, unsigned seed);
struct shape world_shape(const struct world *w, int rank);
/* Fill in sizes and credits first. */
void world_create(struct world *w);
/* Run, then compare; false with the reason in w->sim.why. */
bool world_run(struct world *w);
bool world_run_in_order(struct world *w);
bool world_run_timed(struct world *w, const struct estimate_params *cost,
		     uint64_t *ps);
void world_destroy(struct world *w);
/* Element i of the result on a rank, of its only receive block. */
uint64_t world_result(const struct world *w, int rank, size_t i);
/* What a fold in rank order of element i of block `block` gives. */
uint64_t world_folded(const struct world *w, int block, size_t i);

#endif
