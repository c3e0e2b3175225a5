/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notices from the duration of large collectives that links have changed, and
 * measures the links again.
 *
 * Each rank records how long an operation took, relative to the prediction.
 * After a batch of operations, before the next one, all ranks agree on the
 * minimum of each duration. The minimum is that of the rank that arrived last,
 * so it does not contain waiting for another rank's computation. In operations
 * with a root, some ranks finish early. For these, ranks agree instead on the
 * longest time that a rank needed to receive, counted from the moment when a
 * message of each of its senders had arrived.
 *
 * If these times are unusual for several batches, the links are measured
 * (probe.h), all ranks learn the results, and the next operation is the first
 * one to use the new table.
 *
 * Which operations count depends only on what is equal on all ranks. Small
 * operations never count.
 */
#ifndef DICOMM_LINKS_DRIFT_H
#define DICOMM_LINKS_DRIFT_H

#include "collectives/plan/algorithm.h"
#include "src/core/comm.h"

/* Operations per batch. */
#define DRIFT_BATCH 4

/* Decides whether durations are unusual. Pure arithmetic, with equal results on
 * all ranks. */
struct drift_watch {
	uint32_t batches; /* number of batches until they begin to count */
	uint32_t usual;   /* the usual duration; 0: not known yet */
	/* A duration that is not much longer than this is not unusual; 0: not
	 * known. */
	uint32_t expected;
	uint32_t unusual; /* number of unusual batches in a row */
	/* Number of usual batches since patience was last reduced. */
	uint32_t calm;
	/* This many unusual batches in a row start a measurement. */
	uint32_t patience;
};

/* `expected` is the duration if links are as they were measured; 0: not
 * known. */
void drift_watch_init(struct drift_watch *w, uint32_t expected);
/* Adds a batch with durations in any unit. Returns true if the links should be
 * measured; never if `may` is false. */
bool drift_watch_batch(struct drift_watch *w, const uint32_t took[DRIFT_BATCH],
		       bool may);
/* To be called when the links were measured. `changed`: the rates differ from
 * the old ones. */
void drift_watch_measured(struct drift_watch *w, bool changed);

/* drift_open() starts watching if DICOMM_DRIFT allows it and there are links.
 * To be called when the ranks know each other. */
dicomm_result_t drift_open(struct dicomm_comm *comm);
void drift_free(struct dicomm_comm *comm);

/* Predicts the duration of a call on `bytes` bytes. *ns becomes 0 if the call
 * does not count. */
dicomm_result_t drift_expected(const struct dicomm_comm *comm,
			       const struct call *call, const struct shape *s,
			       uint64_t bytes, const struct algorithm *a,
			       uint64_t *ns);
/* To be called before an operation that counts begins, until it does not return
 * DICOMM_AGAIN. May replace comm->links. */
dicomm_result_t drift_turn(const struct operation *op, bool *moved);
/* Returns the rank for which it waits; -1 for none in particular. */
int drift_awaits(const struct dicomm_comm *comm);
/* To be called when an operation that counts has ended. */
void drift_record(const struct operation *op, uint64_t took_ns,
		  uint64_t expected_ns);

#endif
