/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs whose ranks are bound to unlike devices. A device that this machine or
 * this build does not have is played by another one, of its kind if there is
 * one, which the output says.
 */
#ifndef DICOMM_TESTS_SUPPORT_CAST_H
#define DICOMM_TESTS_SUPPORT_CAST_H

#include "tests/support/trial.h"

#define CAST_DEVICES 5

struct cast {
	const char *device[CAST_DEVICES]; /* of ranks in turn; NULL ends them */
	/* May destroy me->comm, and make it NULL. */
	void (*run)(struct job_rank *me, struct gadget *g);
	const void *arg;
	const char *staging;
	int deterministic;
	bool threads;     /* as in struct job */
	unsigned may_die; /* as in struct job */
	/* Plays those of kinds that are not there; NULL: the host does. */
	const char *instead;
};

/* The host, PoCL, and mocks of CUDA, HIP and Level Zero */
extern const char *const cast_unlike[CAST_DEVICES];

/* Can a rank have it? The output says why not. Asked in a process of its own,
 * for drivers do not live on in the child of a fork. */
bool cast_has(const char *device);
/* Run it to its end; any failure fails the calling test. */
void cast_play(const struct cast *cast, int ranks);
/* trial_run() on the device of the rank. */
void cast_trial(struct trial t, const struct job_rank *me, struct gadget *g);
/* A float all-reduce of 4000 bytes. */
void cast_sum(struct job_rank *me, struct gadget *g);
/* The same of two ranks, each of which receives the other's input once, by rdma
 * and not through host memory; then what explains it. */
void cast_sum_direct(struct job_rank *me, struct gadget *g, char *text,
		     size_t len);
/* A run, by two ranks: rank 1 aborts while its message comes. What it writes to
 * the buffer then has to stay. */
void cast_give_up(struct job_rank *me, struct gadget *g);

dicomm_stats_t cast_stats(const struct job_rank *me);
/* Bytes that this rank received through host memory. */
uint64_t cast_staged(const struct job_rank *me);
/* Bytes that its device copies for a trial. */
uint64_t cast_copied(struct trial t, const struct job_rank *me,
		     struct gadget *g);

#endif
