/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notices from the duration of large collectives that links have changed, and
 * measures them again.
 *
 * Each rank records how long an operation took, relative to the prediction.
 * After a batch, before the next operation, all ranks agree on the minimum of
 * each duration. The minimum is that of the last rank to arrive, which waited
 * for nobody's computation. Operations with a root differ: some ranks finish
 * early. There, ranks agree on the longest time that any rank received, counted
 * from when it had heard from all its senders.
 *
 * If these times are unusual for several batches, the links are measured
 * (probe.h), all ranks learn the results, and the next operation is the first
 * that uses the new table.
 *
 * Which operations count depends only on what is equal on all ranks. Small ones
 * never count.
 */
#ifndef DICOMM_LINKS_DRIFT_H
#define DICOMM_LINKS_DRIFT_H

#include "collectives/plan/algorithm.h"
#include "src/core/comm.h"

/* Operations of a batch */
#define DRIFT_BATCH 4

/* Decides whether durations are unusual. Pure arithmetic, equal on all ranks.
 */
struct drift_watch {
	uint32_t batches; /* so far, until the first that counts */
	uint32_t usual;   /* the usual duration; 0: not known yet */
	/* A duration up to this is never unusual; 0: no such limit */
	uint32_t expected;
	uint32_t unusual; /* unusual batches in a row */
	uint32_t calm;    /* usual batches since patience was last reduced */
	/* Unusual batches in a row that start a measurement */
	uint32_t patience;
};

/* `expected`: the duration if links are as they were measured; 0: not known. */
void drift_watch_init(struct drift_watch *w, uint32_t expected);
/* Add a batch: durations in any unit. True: measure the links. Only if `may`.
 */
bool drift_watch_batch(struct drift_watch *w, const uint32_t took[DRIFT_BATCH],
		       bool may);
/* The links were measured; `changed` says whether they had changed. */
void drift_watch_measured(struct drift_watch *w, bool changed);

/* Begin when the ranks have met, if DICOMM_DRIFT allows it and there are links.
 */
dicomm_result_t drift_open(struct dicomm_comm *comm);
void drift_free(struct dicomm_comm *comm);

/* The predicted duration of a call of so many bytes. 0: it does not count. */
dicomm_result_t drift_expected(const struct dicomm_comm *comm,
			       const struct call *call, const struct shape *s,
			       uint64_t bytes, const struct algorithm *a,
			       uint64_t *ns);
/* Call before an operation that counts begins, until it does not return AGAIN.
 * It may replace comm->links. */
dicomm_result_t drift_turn(const struct operation *op, bool *moved);
/* The rank that it waits for; -1: none in particular. */
int drift_awaits(const struct dicomm_comm *comm);
/* An operation that counts has ended. */
void drift_record(const struct operation *op, uint64_t took_ns,
		  uint64_t expected_ns);

#endif
