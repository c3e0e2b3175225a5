/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Selects the algorithm of a call: of those that may serve it, the one with the
 * shortest predicted time. All ranks select the same one, because the choice
 * depends only on what they share: the table that comes from rank 0, and
 * arguments that must agree.
 */
#ifndef DICOMM_COLLECTIVES_SELECT_SELECT_H
#define DICOMM_COLLECTIVES_SELECT_SELECT_H

#include "collectives/select/estimate.h"

/* Plain data, the same on all ranks. A table that is all zero is valid. */
struct select_table {
	struct estimate_params params;
	uint32_t deterministic; /* true: reduce only with deterministic
				 * algorithms */
	uint32_t overridden;    /* bit c: DICOMM_ALGO names collective c */
	uint64_t allowed[2];    /* bit i: DICOMM_ALGO allows algorithms[i] */
};

/*
 * Reads the value of DICOMM_ALGO. It names collectives, each with the
 * algorithms that may serve it, as in "allreduce:ring,tree;alltoall:^direct",
 * where ^ means all but these. Returns DICOMM_ERR_INVALID_ARGUMENT for an
 * unknown name, and logs the names that exist.
 */
dicomm_result_t select_override(struct select_table *t, const char *text);

/* Selects the algorithm for buffers of `bytes` bytes (the longer one). Returns
 * DICOMM_ERR_INVALID_USAGE, and logs the reasons, if no algorithm can serve the
 * call that DICOMM_ALGO and the deterministic mode allow. Returns
 * DICOMM_ERR_NO_MEMORY if there is no memory to predict times. */
dicomm_result_t select_algorithm(const struct select_table *t,
				 const struct shape *s, uint64_t bytes,
				 const struct algorithm **out);

#define SELECT_NEVER UINT64_MAX

/* Predicts the time of algorithm a in picoseconds. *ps is SELECT_NEVER if a may
 * not serve the call. Returns DICOMM_ERR_NO_MEMORY if there is no memory. */
dicomm_result_t select_predict(const struct select_table *t,
			       const struct shape *s, uint64_t bytes,
			       const struct algorithm *a, uint64_t *ps);

/* Writes a table of all algorithms of the collective to `text`, of len bytes:
 * predicted microseconds, which one is chosen, and why others cannot serve the
 * call. Text beyond len is cut off. Returns DICOMM_ERR_NO_MEMORY if there is no
 * memory. */
dicomm_result_t select_explain(const struct select_table *t,
			       const struct shape *s, uint64_t bytes,
			       char *text, size_t len);

#endif
