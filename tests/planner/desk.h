/* SPDX-License-Identifier: BSD-3-Clause */
/* Small clusters and models for tests, written where the planner reads them. */
#ifndef DICOMM_TESTS_PLANNER_DESK_H
#define DICOMM_TESTS_PLANNER_DESK_H

#include "planner/cost/cost.h"

#define DESK_PATH 512

/* A file with this text in a folder of the test's own; fails the test. */
void desk_write(char path[DESK_PATH], const char *name, const char *text);
/* Of tests/planner in the source tree. */
void desk_source(char path[DESK_PATH], const char *name);

/* A job of the texts of a cluster and a model, without a profile. */
void desk_job(struct job *j, const char *cluster, const char *model, int seq,
	      int batch);
/* Add a stage of so many ranks from `first` on. */
void desk_stage(struct plan_pipeline *l, uint32_t first, int tp, int unit,
		int last);

/* What it says on stderr while fn(ctx) runs, cut off at len. */
void desk_hear(void (*fn)(void *ctx), void *ctx, char *text, size_t len);

#endif
