/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A plan that is being sought: pipelines as lists of teams, a team being the
 * ranks of one stage. What is not decided by that (layers, recomputation,
 * batch shares) follows by exact or greedy rules, so that a search moves teams
 * only. Its estimate is arithmetic; planner/cost/cost.h has the last word.
 */
#ifndef DICOMM_PLANNER_SEARCH_DRAFT_H
#define DICOMM_PLANNER_SEARCH_DRAFT_H

#include "planner/cost/cost.h"
#include "planner/search/layers.h"

struct draft_team {
	uint32_t rank; /* the first of tp neighbours on a node */
	int tp;
};

struct draft_line {
	struct draft_team *team; /* [room]; owned */
	int teams, room;
	int micro_batch;
	/* Found by draft_estimate(): */
	int micro_batches;
	double fill, cycle; /* seconds: the first micro-batch, each further */
	int *last;          /* [room]; owned */
	bool *recompute;    /* [room]; owned */
};

struct draft {
	struct draft_line *line; /* [room]; owned */
	int lines, room;
	int micro_batch; /* of lines that are added */
	bool thin;       /* it began without nodes that are slow to reach */
	/* Found by draft_estimate(): */
	int zero, experts; /* experts: of a plan, expert_parallel */
	double seconds;    /* INFINITY: not possible */
};

/* Lines that look alike cost alike. */
#define DRAFT_MEMOS (1 << 12)
struct draft_memo {
	uint64_t key; /* 0: none */
	int teams, room;
	double fill, cycle;
	bool tight;
	int *last; /* owned */
	bool *recompute;
};

/* What a search is about, and what it remembers of lines. One thread. */
struct drafting {
	struct job *job;
	enum plan_schedule schedule;
	enum plan_overlap overlap;
	int zero, zero_most; /* which ones are tried */
	int ahead;
	int experts_asked; /* expert_parallel; 0: all are tried */
	int experts;       /* of the draft in work */
	double *route;  /* [stage] of the line in work: layers_stage; owned */
	bool by_memory; /* layers after FlashFlex */
	struct draft_memo *memo;    /* [DRAFT_MEMOS]; owned */
	struct layers_stage *stage; /* of the line in work; owned */
	double *scratch;            /* owned */
	int *node_first;            /* [node]; owned */
	int *routes;                /* [node]: crowd_routes(); owned */
	int *sums;                  /* [2 * nodes], of experts; owned */
	int *at;                    /* [rank]: stages of lines; owned */
	double *carried;            /* [4 * nodes]; owned */
	double slack;
	bool tight;       /* memory decided the line in work */
	double give_up_s; /* 0: never */
	double limit_s;   /* of the slowest stage, likewise */
};

bool drafting_open(struct drafting *d, struct job *j);
void drafting_close(struct drafting *d);
/* What it remembers: after one of its settings has changed. */
void drafting_forget(struct drafting *d);

void draft_init(struct draft *d, int micro_batch);
void draft_free(struct draft *d);
/* False: no memory. */
bool draft_copy(struct draft *to, const struct draft *from);
bool draft_add_line(struct draft *d);
bool draft_add_team(struct draft_line *l, int at, struct draft_team team);
struct draft_team draft_take_team(struct draft_line *l, int at);

/* Sets seconds and all that is found. A draft that takes longer than give_up_s
 * of the drafting may be left at INFINITY. */
void draft_estimate(struct drafting *g, struct draft *d);
/* Of the first line, if all others were like it: no more than the estimate.
 * INFINITY if that is above most_s. */
double draft_first_line(struct drafting *g, struct draft *d, int lines,
			double most_s);
/* False: no memory. */
bool draft_plan(const struct drafting *g, const struct draft *d,
		struct plan *out);

#endif
