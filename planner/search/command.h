/* SPDX-License-Identifier: BSD-3-Clause */
/* dicomm-plan search: writes the plan that is found, says what it costs. */
#ifndef DICOMM_PLANNER_SEARCH_COMMAND_H
#define DICOMM_PLANNER_SEARCH_COMMAND_H

#include "planner/options.h"
#include "planner/cost/table.h"

/* The exit status: 0, or 7 after a message. */
int search_command(const struct options *o, struct job *j);

#endif
