/* SPDX-License-Identifier: BSD-3-Clause */
/* An operation in progress: a call, its plan, and how far it has come. */
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

/* State of the slices of one message step */
struct flow {
	/* The sender had the whole block ready: one reference stands for all
	 * slices. */
	bool whole;
	struct tp_ref ref; /* receiver's */
	uint64_t bytes;    /* behind it */
	/* Bytes requested, and bytes arrived, at the final place. Both may be
	 * ahead of the steps. */
	uint64_t read, arrived;
	/* Receiver's. Bit k % 64: slice k is POSTED, a read is in progress. */
	uint64_t posted;
};

struct operation {
	struct dicomm_comm *comm;
	struct call call;
	struct prepared *prep;
	struct schedule schedule;
	/* Within its class; for point to point, within its pair */
	uint64_t number;
	uint32_t signature; /* of this operation, checked by every message */
	/* Set where the duration is measured. */
	uint64_t begun_ns, ended_ns; /* 0: not yet */
	uint32_t looked;             /* steps checked for that */
	bool started, done;
	bool ending; /* its last event is in the stream of the device */
	/* Neighbours in its queue. It runs when there is none before it. */
	struct operation *before, *after;
	struct flow *flows; /* [step] */
	uint32_t flows_room;
	/* Handles of PLAN_SEND and PLAN_RECV: of the whole buffer, or of its
	 * runs */
	struct mem_handles handles[2];
	struct block_runs runs[2];
	/* How long it has waited while the thread waits for another one */
	struct waiter watch;
	struct operation *next;
};

#endif
