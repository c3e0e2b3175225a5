/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One call after the other without an end: every operation there is, blocking,
 * on streams and in groups, small and large, on every kind of memory. What
 * succeeds is compared with the definition. All ranks draw the same calls from
 * the seed.
 */
#ifndef DICOMM_TESTS_SUPPORT_STORM_H
#define DICOMM_TESTS_SUPPORT_STORM_H

#include "tests/support/job.h"
#include "tests/support/residue.h"

#define STORM_STREAMS 2

struct storm {
	struct job_rank me;
	unsigned seed, number;
	size_t most; /* elements of a block, set after storm_begin(); 0: many */
	dicomm_stream_t streams[STORM_STREAMS];
};

void storm_begin(struct storm *s, const struct job_rank *me, unsigned seed);
/* The next calls; returns when they are done. The status of the first that
 * failed; then dicomm_get_last_error(NULL) has its text. */
dicomm_result_t storm_next(struct storm *s);
void storm_end(struct storm *s);

/* A call of all ranks of a bare job: a communicator comes and goes, so that all
 * that stays for the life of the process is there. */
void storm_warm_up(const struct job_rank *me, struct residue *before);

/* A random number that depends on nothing but its seed. */
unsigned storm_random(unsigned *state, unsigned below);

#endif
