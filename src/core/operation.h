/* SPDX-License-Identifier: BSD-3-Clause */
/* An operation under way: a call, its plan, and how far both have come. */
#ifndef DICOMM_CORE_OPERATION_H
#define DICOMM_CORE_OPERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/plan/schedule.h"
#include "src/core/block_runs.h"
#include "src/core/call.h"
#include "src/core/memory.h"
#include "src/core/wait.h"
#include "transports/transport.h"

struct dicomm_comm;
struct prepared;

/* Where the slices of a message step are. */
struct flow {
	/* The source lay ready as a whole: one reference stands for all. */
	bool whole;
	struct tp_ref ref; /* receiver's */
	uint64_t bytes;    /* behind it */
	/* Asked for, and there, at the final place: maybe ahead of the steps */
	uint64_t read, arrived;
	/* Receiver's; bit k % 64: slice k is POSTED, a read() is under way */
	uint64_t posted;
};

struct operation {
	struct dicomm_comm *comm;
	struct call call;
	struct prepared *prep;
	struct schedule schedule;
	uint64_t number;    /* in its class (and pair) */
	uint32_t signature; /* of this very operation */
	/* Where it is asked how long it takes. */
	uint64_t begun_ns, ended_ns; /* 0: not yet */
	uint32_t looked;             /* steps, for that */
	bool started, done;
	bool ending; /* its last mark is in the stream of the device */
	/* Neighbours in its queue: runs when there is none before. */
	struct operation *before, *after;
	struct flow *flows; /* [step] */
	uint32_t flows_room;
	/* Of PLAN_SEND and PLAN_RECV of the call: the whole, or blocks */
	struct mem_handles handles[2];
	struct block_runs runs[2];
	struct waiter watch; /* while another one is waited for */
	struct operation *next;
};

#endif
