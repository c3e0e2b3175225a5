/* SPDX-License-Identifier: BSD-3-Clause */
/* Finding the plan that takes the least time. */
#ifndef DICOMM_PLANNER_SEARCH_SEARCH_H
#define DICOMM_PLANNER_SEARCH_SEARCH_H

#include "planner/search/draft.h"

enum search_space {
	SEARCH_TYPE,      /* each stage of one type, pipelines alike */
	SEARCH_DEVICE,    /* any */
	SEARCH_AUTO,      /* both */
	SEARCH_EVERY,     /* all there are: a few devices only */
	SEARCH_RANDOM,    /* partitions at random, to compare with */
	SEARCH_SYMMETRIC, /* as Megatron: equal stages, ranks in their order */
};

struct search {
	struct job *job;
	enum search_space space;
	enum plan_schedule schedule;
	enum plan_overlap overlap;
	int zero;        /* below 0: 0 to 3 are tried */
	int ahead;       /* 1F1B: of all plans (planner/input/plan.h) */
	int micro_batch; /* 0: several are tried */
	int rounds;      /* of moves, for each start */
	double budget_s; /* above 0: rounds until then */
	int seed, jobs;
	bool by_memory; /* layers by memory, to compare with */
	/* From now and then, by one thread: how far it is. NULL: quiet. */
	void (*progress)(double part, double best_s, void *ctx);
	void *ctx;
};

struct search_found {
	struct plan plan, second; /* second.pipelines 0: there is none */
	struct cost cost, second_cost;
	const char *from; /* the space of the best */
	long drafts;      /* looked at */
	double first_s,
		all_s; /* until the first possible plan; until the end */
};

/* False after a message: nothing fits, no memory. The same plan for the same
 * seed and rounds, whatever the jobs; a budget of time promises no such thing.
 */
bool search_run(const struct search *s, struct search_found *out);
void search_free(struct search_found *f);

/* ---- of the spaces ---- */

/* The drafts that may be best, the best first, each of its own kind. Sorted by
 * estimate, then by number, so that threads do not matter. */
#define SEARCH_KEPT 24
/* Estimates are that good: what is beyond the best is not simulated. */
#define SEARCH_MARGIN 1.03
/* Those of like pipelines: what is beyond is not looked into. */
#define SEARCH_MARGIN_TYPE 1.3
struct search_best {
	struct draft draft[SEARCH_KEPT];
	long number[SEARCH_KEPT];
	int n;
};

/* Takes a copy if it is among the best. */
bool search_keep(struct search_best *b, const struct draft *d, long number);
void search_best_free(struct search_best *b);

/* What the search of a space may use: one for each thread. */
struct search_worker {
	const struct search *s;
	struct drafting g;
	struct search_best best;
	long drafts;
	int index, workers;
	double begin_s, first_s;
	bool bad; /* no memory */
};
double search_now(void);
bool search_over(const struct search_worker *w);

/* Estimates a draft, and keeps it if it is good. */
void search_look(struct search_worker *w, struct draft *d, long number);
void search_type(struct search_worker *w);
void search_device(struct search_worker *w);
void search_random(struct search_worker *w);
void search_every(struct search_worker *w);
/* Makes d better by moves of teams, for so many rounds. */
void search_climb(struct search_worker *w, struct draft *d, uint64_t seed,
		  int rounds);
/* Degrees that teams of a kind may have, ascending; how many. */
#define SEARCH_DEGREES 16
int search_degrees(const struct job *j, int kind, int out[SEARCH_DEGREES]);
/* Micro-batches to start with, which divide the batch; how many. */
#define SEARCH_SIZES 16
int search_batches(const struct search *s, int out[SEARCH_SIZES]);
/* Found or not: false only if there is no memory. */
bool search_spaces(const struct search *s, struct search_found *out);
/* Says what is missing where nothing was found. */
void search_why(const struct search *s);
/* Symmetric plans are no drafts. False: no memory. */
bool search_symmetric(const struct search *s, struct search_found *out);

#endif
