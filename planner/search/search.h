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

enum search_objective {
	SEARCH_TIME,             /* of a step */
	SEARCH_PRICE,            /* of an hour of the devices in use */
	SEARCH_TOKENS_PER_PRICE, /* most of them */
};

struct search {
	struct job *job;
	enum search_space space;
	enum plan_schedule schedule;
	enum plan_overlap overlap;
	int zero;        /* below 0: 0 to 3 are tried */
	int ahead;       /* 1F1B: of all plans (planner/input/plan.h) */
	int interleave;  /* chunks of a team: so many are tried beside one;
			  * below 0: 2, 4, ... are; 0: none */
	int micro_batch; /* 0: several are tried */
	int experts;     /* expert_parallel of plans; 0: all are tried */
	int rounds;      /* of moves, for each start */
	double budget_s; /* above 0: rounds until then */
	int seed, jobs;
	int keep;       /* plans that are wanted, the best included */
	bool by_memory; /* layers by memory, to compare with */
	enum search_objective objective;
	/* Of the plan, at most; 0: any. */
	int devices_most;
	double price_most, watts_most, step_most_s;
	/* From now and then, by one thread: how far it is. NULL: quiet. */
	void (*progress)(double part, double best_s, void *ctx);
	void *ctx;
};

#define SEARCH_PLANS 16 /* that may be kept */

struct search_found {
	struct plan plan;
	struct cost cost;
	/* The next best, fastest first: no two take equally long. */
	struct search_other {
		struct plan plan;
		struct cost cost;
		const char *from;
	} other[SEARCH_PLANS - 1];
	int others;
	const char *from; /* the space of the best */
	long drafts;      /* looked at */
	int sets;         /* of devices, likewise; 0: all of them */
	double first_s,
		all_s; /* until the first possible plan; until the end */
};

/* False after a message: nothing fits, no memory. The same plan for the same
 * seed and rounds, whatever the jobs; a budget of time promises no such thing,
 * nor do other objectives and limits of more than 256 devices.
 */
bool search_run(const struct search *s, struct search_found *out);
void search_free(struct search_found *f);
/* Takes a plan that fits, and its cost, over: `from` is its space. */
void search_take(const struct search *s, struct search_found *out,
		 struct plan *p, struct cost *c, const char *from);

/* ---- other objectives than time ---- */

/* No limits, and no other objective. */
bool search_is_plain(const struct search *s);
/* The less, the better; INFINITY: beyond a limit. */
double search_value(const struct search *s, const struct plan *p,
		    const struct cost *c);
/* False after a message: a type of devices does not tell what is asked about,
 * price or watts. */
bool search_has_prices(const struct search *s);
/* False after a message: no memory. A plan of no pipelines: none is within the
 * limits. Of types that search_has_prices(). */
bool search_objective(const struct search *s, struct search_found *out);

/* ---- drafts that are kept ---- */

/* Of each micro-batch size and number of pipelines, so many; and of all. */
#define SEARCH_EACH 4
#define SEARCH_KEPT 144
/* Where all there is is looked at, that it may be compared with. */
#define SEARCH_EACH_OF_EVERY 64
#define SEARCH_KEPT_OF_EVERY 1024
/* Estimates that are so many times the best are not looked into: of alike
 * pipelines; and of others, which are climbed from. */
#define SEARCH_MARGIN_TYPE 1.3
#define SEARCH_MARGIN 2

struct search_kept {
	struct draft draft;
	long number;
	double step; /* simulated; INFINITY: does not fit; NAN: not asked */
};

/* Sorted by estimate, then by number, so that threads do not matter. */
struct search_best {
	struct search_kept *kept; /* [most]; owned */
	int n, most, each;
};

bool search_best_open(struct search_best *b, int most, int each);
void search_best_empty(struct search_best *b);
void search_best_close(struct search_best *b);
/* Takes a copy if it is among the best. False: no memory. */
bool search_keep(struct search_best *b, const struct draft *d, long number);
/* What takes longer is not kept, if it has as many pipelines and the same
 * micro-batch; 0: anything is. */
double search_best_limit(const struct search_best *b, const struct draft *d);
/* Drops what takes so many times the best. */
void search_best_trim(struct search_best *b, double margin);

/* ---- of the spaces ---- */

/* Drafts of the device space have numbers from here on. */
#define SEARCH_DEVICE_FIRST (INT64_C(1) << 40)

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

/* ---- climbing ---- */

#define SEARCH_SEEN (1 << 10)

/* Makes a draft better by moves, now and then from a worse one. */
struct search_climb {
	struct draft at, best;
	double step, best_step; /* simulated, but what is guessed */
	bool guessed;
	struct draft_line idle; /* teams that do nothing */
	uint64_t random;
	int stuck;   /* moves without success */
	long credit; /* operations that may be simulated */
	/* By estimate: what simulation said. [SEARCH_SEEN]; owned */
	struct search_seen {
		double seconds, step;
	} * seen;
};

/* False: no memory. */
bool search_climb_open(struct search_climb *c, const struct search_kept *from,
		       uint64_t seed);
void search_climb_close(struct search_climb *c);
/* So many rounds of moves; c->best is what came of it. */
void search_climb(struct search_worker *w, struct search_climb *c, int rounds);

/* ---- chunks ---- */

/* Are any asked for? */
static inline bool search_has_chunks(const struct search *s)
{
	return s->interleave < 0 || s->interleave > 1;
}
/* The fastest plan that p, which is not interleaved, becomes with chunks, of
 * those that s asks for; of no pipelines: there is none. False: no memory. */
bool search_chunks(const struct search *s, const struct plan *p,
		   struct plan *out, struct cost *c);

/* ---- the last word ---- */

/* Seconds of a step by simulation; INFINITY: it does not fit; NAN: no memory.
 */
double search_step(const struct search *s, const struct drafting *g,
		   const struct draft *d);
/* How many operations its simulation has, about. */
long search_operations(const struct draft *d);
/* Simulates it with all settings that its estimate had no opinion on, and moves
 * layers and micro-batches about; `out` has the best. */
bool search_finish(const struct search *s, struct drafting *g, struct draft *d,
		   const char *from, struct search_found *out);

/* Degrees that teams of a kind may have, ascending; how many. */
#define SEARCH_DEGREES 16
int search_degrees(const struct job *j, int kind, int out[SEARCH_DEGREES]);
/* Micro-batches to start with, which divide the batch; how many. */
#define SEARCH_SIZES 16
int search_batches(const struct search *s, int out[SEARCH_SIZES]);
/* All that pipelines beside each other may have. */
int search_sizes(const struct search *s, int out[SEARCH_SIZES]);
/* Found or not: false only if there is no memory. */
bool search_spaces(const struct search *s, struct search_found *out);
/* The same; of a few devices also with each ZeRO stage alone if all are tried,
 * and with each micro-batch that is not far behind. */
bool search_each(const struct search *s, struct search_found *out);
/* Says what is missing where nothing was found. */
void search_why(const struct search *s);
/* Symmetric plans are no drafts. False: no memory. */
bool search_symmetric(const struct search *s, struct search_found *out);

#endif
