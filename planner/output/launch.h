/* SPDX-License-Identifier: BSD-3-Clause */
/* Which host runs which ranks of a plan, in the words of launchers. */
#ifndef DICOMM_PLANNER_OUTPUT_LAUNCH_H
#define DICOMM_PLANNER_OUTPUT_LAUNCH_H

#include <stdio.h>

#include "planner/cost/table.h"

/* For mpirun: a host and its ranks a line. False after a message: a host has no
 * name, or one that a shell or YAML would not take as it is. */
bool launch_hostfile(FILE *out, const struct job *j);
/* A script for sbatch, which runs its arguments in each rank; likewise. */
bool launch_slurm(FILE *out, const struct job *j);
/* A JobSet for Kubernetes, and the plan in a ConfigMap beside it. Nodes with a
 * name are that host; others have the label dicomm/device. False after a
 * message: such a name, or no memory. */
bool launch_jobset(FILE *out, const struct job *j, const struct plan *p);

#endif
