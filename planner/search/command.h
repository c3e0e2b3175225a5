/* SPDX-License-Identifier: BSD-3-Clause */
/* dicomm-plan search and replan: write the plan that is found, say what it
 * costs. */
#ifndef DICOMM_PLANNER_SEARCH_COMMAND_H
#define DICOMM_PLANNER_SEARCH_COMMAND_H

#include "planner/options.h"
#include "planner/cost/table.h"
#include "planner/input/plan.h"

/* The exit status: 0, or 7 after a message. */
int search_command(const struct options *o, struct job *j);
/* The same for `replan`, of the plan that ran until now. */
int search_replan_command(const struct options *o, struct job *j,
			  const struct plan *old);

#endif
