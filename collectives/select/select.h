/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which algorithm serves a call: the one of the least predicted time among
 * those that may. All ranks get the same answer, as it depends only on what
 * they share: the table of rank 0 and the arguments that must agree.
 */
#ifndef DICOMM_COLLECTIVES_SELECT_SELECT_H
#define DICOMM_COLLECTIVES_SELECT_SELECT_H

#include "collectives/select/estimate.h"

/* Plain data, the same on all ranks; all zero is a valid start. */
struct select_table {
	struct estimate_params params;
	uint32_t deterministic; /* reductions by ordered algorithms only */
	uint32_t overridden;    /* bit c: DICOMM_ALGO names collective c */
	uint64_t allowed[2];    /* bit i: algorithms[i], if overridden */
};

/*
 * Take over DICOMM_ALGO: collectives with the algorithms that may serve them,
 * as in "allreduce:ring,tree;alltoall:^direct", where ^ means all but these. An
 * unknown name is ERR_INVALID_ARGUMENT, and the message lists what there is.
 */
dicomm_result_t select_override(struct select_table *t, const char *text);

/* The algorithm for buffers of `bytes` (the longer one). ERR_INVALID_USAGE,
 * with the reasons, if the override leaves none that can serve the call. */
dicomm_result_t select_algorithm(const struct select_table *t,
				 const struct shape *s, uint64_t bytes,
				 const struct algorithm **out);

#define SELECT_NEVER UINT64_MAX

/* Predicted picoseconds of one of them; SELECT_NEVER if it may not serve the
 * call. ERR_NO_MEMORY. */
dicomm_result_t select_predict(const struct select_table *t,
			       const struct shape *s, uint64_t bytes,
			       const struct algorithm *a, uint64_t *ps);

/* All algorithms of the collective as text: predicted microseconds, the chosen
 * one marked, and why others cannot serve. Cut off at len. ERR_NO_MEMORY. */
dicomm_result_t select_explain(const struct select_table *t,
			       const struct shape *s, uint64_t bytes,
			       char *text, size_t len);

#endif
