/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans in the words of programs that train. */
#ifndef DICOMM_PLANNER_OUTPUT_EXPORT_H
#define DICOMM_PLANNER_OUTPUT_EXPORT_H

#include <stdio.h>

#include "planner/cost/table.h"

/*
 * flagscale: keys of FlagScale's configuration for unlike chips; pipelines must
 * be alike. megatron: options of Megatron-LM; besides, all degrees must be.
 * torch: JSON with what each rank of torchrun needs; any plan. hostfile, slurm,
 * jobset: planner/output/launch.h. False after a message that says why the plan
 * cannot be told so.
 */
bool export_plan(FILE *out, const char *format, const struct job *j,
		 const struct plan *p);

#endif
