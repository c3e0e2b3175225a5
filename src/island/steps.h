/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What each collective but all-to-all (exchange.h) does, in three steps: the
 * vendor's library reduces or spreads within each island, each rank does its
 * part between islands (owner.h, swap.h), and the vendor's library spreads the
 * result.
 *
 *   allreduce       reduce-scatter, all-reduce, all-gather
 *   reduce_scatter  reduce of each block to an owner, reduce-scatter
 *   reduce          reduce-scatter, reduce to the root's island, sends
 *   allgather       all-gather, broadcasts
 *   broadcast       broadcast in the root's island, broadcast, all-gather
 */
#ifndef DICOMM_ISLAND_STEPS_H
#define DICOMM_ISLAND_STEPS_H

#include "src/island/job.h"

/* Bytes of scratch that a job needs */
size_t island_steps_scratch(const struct job *j);
/* What the vendor's library does before and after; NULL: nothing */
island_queue_fn *island_steps_before(const struct job *j);
island_queue_fn *island_steps_after(const struct job *j);
/* What is between islands: waited for on a host rank without a stream, else
 * queued. */
dicomm_result_t island_steps_between(const struct job *j);
/* The same, not waited for */
dicomm_result_t island_steps_begin(const struct job *j,
				   struct island_part **part);

#endif
