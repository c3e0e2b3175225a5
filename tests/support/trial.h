/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One operation of one rank with its buffers: filled, called, compared with the
 * definition. What no definition gives to the operation (guards before and
 * behind, gaps, what is sent, buffers of other ranks than root) has to be
 * untouched.
 */
#ifndef DICOMM_TESTS_SUPPORT_TRIAL_H
#define DICOMM_TESTS_SUPPORT_TRIAL_H

#include "tests/support/element.h"
#include "tests/support/gadget.h"
#include "tests/support/job.h"

enum trial_kind {
	TRIAL_ALLREDUCE,
	TRIAL_REDUCE,
	TRIAL_BROADCAST,
	TRIAL_REDUCE_SCATTER,
	TRIAL_ALLGATHER,
	TRIAL_ALLTOALL,
	TRIAL_GATHER,
	TRIAL_SCATTER,
	TRIAL_ALLTOALLV,
	TRIAL_ALLGATHERV,
	TRIAL_REDUCE_SCATTERV,
	TRIAL_GATHERV,
	TRIAL_SCATTERV,
	TRIAL_BARRIER,
	TRIAL_SENDRECV,     /* to the next rank, from the one before */
	TRIAL_REDUCE_LOCAL, /* inputs of the ranks 0 and 1, on each */
	TRIAL_KINDS
};

/* What to do; equal on all ranks unless said otherwise. */
struct trial {
	enum trial_kind kind;
	dicomm_datatype_t type;
	dicomm_redop_t op; /* or ELEMENT_PREMULSUM */
	size_t count;      /* of a block; v-collectives: about */
	int root;
	unsigned seed;
	/* may differ between ranks */
	bool in_place;
	bool shared;    /* buffers from dicomm_mem_alloc() */
	bool announced; /* by dicomm_comm_register() */
	size_t skew;    /* bytes that buffers begin after a cache line */
	/* Where buffers are; NULL: in host memory. The call goes by the stream
	 * of it, and so do the copies before and after. */
	const struct gadget *gadget;

	/* The rest is made by trial_fill(). */
	dicomm_comm_t comm;
	int rank, ranks;
	dicomm_redop_t created;
	size_t *counts, *send_displs, *recv_counts, *recv_displs;
	struct trial_area {
		uint8_t *memory, *at, *image;
		uint8_t *device; /* what the call works on; NULL: memory */
		void *handle;    /* where it is announced */
		size_t bytes;    /* all, with guards */
		bool shared;
	} send, recv; /* in place: all of it is send */
};

/* "allreduce" */
const char *trial_name(enum trial_kind kind);
bool trial_reduces(enum trial_kind kind);
bool trial_rooted(enum trial_kind kind);
/* Does the operation have an in-place form? */
bool trial_can_be_in_place(enum trial_kind kind);

/* Which ranks call in place */
enum trial_placement { TRIAL_APART, TRIAL_IN_PLACE, TRIAL_MIXED, TRIAL_PLACES };
/* The number of these that the operation has */
int trial_placements(enum trial_kind kind);
/* Set what is free in a trial by that and by its seed. */
void trial_place(struct trial *t, const struct job_rank *me,
		 enum trial_placement p);

void trial_fill(struct trial *t, const struct job_rank *me);
/* Fill again for one more call, with the same buffers. */
void trial_refill(struct trial *t, unsigned seed);
/* A sendrecv is a group of its own. */
dicomm_result_t trial_call(struct trial *t, dicomm_stream_t stream);
/* Ends the job when anything differs. */
void trial_check(struct trial *t);
void trial_free(struct trial *t);

/* All of it; blocking, or on the stream of the device. */
void trial_run(struct trial t, const struct job_rank *me);
/* An all-reduce of 80,000 bytes by a rank of a communicator */
void trial_works(dicomm_comm_t comm, int rank, int ranks);
/* A few of several kinds: messages of all lengths, some of which the receiver
 * fetches. */
void trial_run_some(const struct job_rank *me, unsigned seed);

#endif
