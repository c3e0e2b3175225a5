/* SPDX-License-Identifier: BSD-3-Clause */
/* Results of the planner, for people and for programs. */
#ifndef DICOMM_PLANNER_OUTPUT_REPORT_H
#define DICOMM_PLANNER_OUTPUT_REPORT_H

#include <stdio.h>

#include "planner/cost/cost.h"

/* The step: its time with an error band, where it goes, memory beside limits,
 * devices that the plan leaves idle. */
void report_cost(FILE *out, struct job *j, const struct plan *p,
		 const struct cost *c);
/* Stage by stage, and what limits. */
void report_stages(FILE *out, struct job *j, const struct plan *p,
		   const struct cost *c);
/* The ranks that exchange activations, and those that sum gradients. */
void report_groups(FILE *out, struct job *j, const struct plan *p);
/* Several plans, by the time of a token; why the others lose. */
struct report_entry {
	const char *name;
	const struct job *job;
	const struct plan *plan;
	const struct cost *cost;
};
void report_compare(FILE *out, const struct report_entry *entry, int n);
/* As JSON: seconds and bytes. NULL: out of memory. */
json_t *report_json(const struct job *j, const struct plan *p,
		    const struct cost *c);

#endif
