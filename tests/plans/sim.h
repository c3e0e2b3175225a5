/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs the plans of all ranks in this process, with the real schedule and real
 * data: pairs are rings of a few slots, messages arrive in random order, ranks
 * take turns in random order. Elements are 64 bits wide.
 */
#ifndef DICOMM_TESTS_PLANS_SIM_H
#define DICOMM_TESTS_PLANS_SIM_H

#include "collectives/plan/algorithm.h"
#include "collectives/select/estimate.h"
#include "collectives/plan/schedule.h"

/* Blocks of one buffer of one rank, in elements. */
struct sim_buffer {
	uint64_t *base;
	uint32_t blocks;
	const size_t *len, *off; /* [block] */
};

struct sim_rank {
	struct plan plan;
	struct sim_buffer buffer[2]; /* PLAN_SEND, PLAN_RECV */
	/* private to sim.c */
	uint64_t *scratch;
	struct schedule schedule;
	uint64_t slices;
	uint32_t next; /* step, in order */
	uint64_t clock_ps, out_free_ps;
	bool waiting;
	uint64_t wakes_ps;
	struct sim *sim;
	int number;
};

struct sim_message;

struct sim {
	int ranks;
	struct sim_rank *rank;
	size_t longest;         /* block, over all ranks */
	const size_t *like_len; /* of scratch spans; NULL: all longest */
	size_t slice;           /* elements; plans marked whole ignore it */
	size_t align;           /* elements in a cache line */
	uint64_t window;
	uint32_t credits;
	unsigned references; /* percent of messages read where they lie */
	unsigned seed;
	uint64_t (*op)(uint64_t a, uint64_t b);
	uint64_t (*scale)(uint64_t a);
	/* private to sim.c */
	const struct estimate_params *cost; /* sim_run_timed() */
	struct sim_message *messages;       /* [from][to][credits] */
	uint64_t *released;                 /* [from][to] */
	char why[256];                      /* what went wrong */
};

/* False with the reason in sim->why: deadlock, a stray or unequal message, a
 * span that leaves its buffer. */
bool sim_run(struct sim *sim);
/* One slice, each rank strictly in the order of its plan; messages are copied
 * into the slot. */
bool sim_run_in_order(struct sim *sim);
/*
 * How long it takes if things cost what `cost` says: a core for each rank; a
 * message arrives after a latency, then occupies the receiver and the way out
 * of the sender.
 */
bool sim_run_timed(struct sim *sim, const struct estimate_params *cost,
		   uint64_t *ps);

#endif
