/* SPDX-License-Identifier: BSD-3-Clause */
/* A plan for what is left of the devices of another one, near which weights
 * have to move little. */
#ifndef DICOMM_PLANNER_SEARCH_REPLAN_H
#define DICOMM_PLANNER_SEARCH_REPLAN_H

#include "planner/search/search.h"

/* A plan may take so many times the fastest one, if less moves. */
#define REPLAN_SLOWER 1.02

struct replan {
	/* Bytes of weights and optimizer, as if ZeRO had spread none of it. */
	double moved, fastest_moved;
	double fastest_s; /* a step, whatever moves */
	double gone;      /* bytes that no rank has any more: of a checkpoint */
};

/* Marks ranks as lost, in fleet.off: "4,8-11", or names of hosts. False after a
 * message. */
bool replan_lose(struct job *j, const char *text);
/* What the plan would have ranks fetch, that ran the old one. */
double replan_moves(const struct job *j, const struct plan *old,
		    const struct plan *new);
/* For the ranks that are not off. False after a message: nothing fits, no
 * memory. */
bool replan_run(const struct search *s, const struct plan *old,
		struct search_found *out, struct replan *r);

#endif
