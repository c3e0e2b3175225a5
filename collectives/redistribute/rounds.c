/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the earliest round in which a piece fits into the staging memory of all
 * its ranks. */
#include "collectives/redistribute/rounds.h"

#include <stdbool.h>
#include <stdlib.h>

#include "src/base/log.h"

dicomm_result_t rounds_make(struct rounds *r, int ranks, uint64_t staging)
{
	*r = (struct rounds){.staging = staging};
	r->rank = calloc((size_t)ranks, sizeof(*r->rank));
	r->touched = calloc((size_t)ranks, sizeof(*r->touched));
	if (r->rank && r->touched)
		return DICOMM_SUCCESS;
	rounds_free(r);
	return FAIL(DICOMM_ERR_NO_MEMORY,
		    "redistribute: no memory for the rounds of %d ranks",
		    ranks);
}

void rounds_free(struct rounds *r)
{
	free(r->rank);
	free(r->touched);
	*r = (struct rounds){.n = 0};
}

void rounds_add(struct rounds *r, int rank, uint64_t now, uint64_t next)
{
	struct rounds_rank *k = &r->rank[rank];

	if (!k->touched)
		r->touched[r->n++] = rank;
	k->touched = 1;
	k->add_now += now;
	k->add_next += next;
}

/* Computes the bytes that a rank has in a round, and in the next one. */
static void load_at(const struct rounds_rank *k, uint32_t round, uint64_t *now,
		    uint64_t *next)
{
	*now = round == k->round ? k->now : round == k->round + 1 ? k->next : 0;
	*next = round == k->round ? k->next : 0;
}

static bool fits(const struct rounds *r, const struct rounds_rank *k,
		 uint32_t round)
{
	uint64_t now, next;

	load_at(k, round, &now, &next);
	return now + k->add_now <= r->staging &&
	       next + k->add_next <= r->staging;
}

uint32_t rounds_place(struct rounds *r)
{
	uint32_t round = 0;

	for (int i = 0; i < r->n; i++)
		if (r->rank[r->touched[i]].round > round)
			round = r->rank[r->touched[i]].round;
	/* This ends: two rounds later, the staging memory of all of them is
	 * empty. */
	for (int i = 0; i < r->n; i++)
		while (!fits(r, &r->rank[r->touched[i]], round)) {
			round++;
			i = 0;
		}
	for (int i = 0; i < r->n; i++) {
		struct rounds_rank *k = &r->rank[r->touched[i]];
		uint64_t now, next;

		load_at(k, round, &now, &next);
		*k = (struct rounds_rank){
			round, now + k->add_now, next + k->add_next, 0, 0, 0};
	}
	r->n = 0;
	return round;
}
