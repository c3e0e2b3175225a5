/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notices that links have changed, by how long large collectives take, and
 * then measures them anew.
 *
 * Each rank notes how long an operation took in terms of what was predicted.
 * After a few of them, before the next one, all agree on the shortest times: of
 * the rank that came last, and so waited for nobody's computing; of operations
 * with a root, where that one may be done at once, on the longest times that
 * any rank received, once it had heard of all who sent to it. Where these
 * have been unusual for some batches, links are measured (probe.h), all ranks
 * hear the results, and that next operation is the first by the new table.
 *
 * Which operations count depends on what must be equal on all ranks; small ones
 * never do.
 */
#ifndef DICOMM_LINKS_DRIFT_H
#define DICOMM_LINKS_DRIFT_H

#include "collectives/plan/algorithm.h"
#include "src/core/comm.h"

/* Operations of a batch. */
#define DRIFT_BATCH 4

/* Is what operations take unusual? The arithmetic, the same on all ranks. */
struct drift_watch {
	uint32_t batches;  /* so far, up to the first that counts */
	uint32_t usual;    /* 0: not known yet; then */
	uint32_t expected; /* what is longer than this is not; 0: it may be */
	uint32_t unusual;  /* batches in a row */
	uint32_t calm;     /* others, since patience was last less */
	uint32_t patience; /* how many of them are enough */
};

/* `expected`: what operations take where links are what they were found to be;
 * 0: that is not known. */
void drift_watch_init(struct drift_watch *w, uint32_t expected);
/* What its operations took, as multiples of any unit; true: measure. Only where
 * it may be done. */
bool drift_watch_batch(struct drift_watch *w, const uint32_t took[DRIFT_BATCH],
		       bool may);
/* It was done. */
void drift_watch_measured(struct drift_watch *w, bool changed);

/* When the ranks have met, if DICOMM_DRIFT lets it and there are links. */
dicomm_result_t drift_open(struct dicomm_comm *comm);
void drift_free(struct dicomm_comm *comm);

/* How long a call of so many bytes should take; 0: it does not count. */
dicomm_result_t drift_expected(const struct dicomm_comm *comm,
			       const struct call *call, const struct shape *s,
			       uint64_t bytes, const struct algorithm *a,
			       uint64_t *ns);
/* Before an operation that counts begins, until it is not AGAIN: comm->links
 * may then be others. */
dicomm_result_t drift_turn(const struct operation *op, bool *moved);
/* Whom that waits for; -1: nobody in particular. */
int drift_awaits(const struct dicomm_comm *comm);
/* An operation that counts has ended. */
void drift_record(const struct operation *op, uint64_t took_ns,
		  uint64_t expected_ns);

#endif
