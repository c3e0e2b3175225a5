/* SPDX-License-Identifier: BSD-3-Clause */
/* Does a plan make sense for a model and a cluster, and does it fit? */
#ifndef DICOMM_PLANNER_COST_CHECK_H
#define DICOMM_PLANNER_COST_CHECK_H

#include "planner/cost/cost.h"

/* Calls say() for each thing that is wrong, with the plan's file if it has one;
 * how many. What cost_of() could not
 * stand comes first, and then it is not asked. */
typedef void check_say(const char *text, void *ctx);
int check_plan(struct job *j, const struct plan *p, check_say *say, void *ctx);

#endif
