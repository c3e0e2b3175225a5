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

/* A send or receive with a tag; see src/engine/tagged.h. */
enum tagged_state {
	TAGGED_POSTED,
	TAGGED_OFFERED, /* a send: the receiver is to say that it is ready */
	TAGGED_FOUND,   /* a receive: this rank has to say that */
	TAGGED_MOVING,  /* bytes go from the one to the other */
	TAGGED_READING, /* a receive: it reads what a reference refers to */
	TAGGED_DONE
};

struct tagged_op {
	struct operation *next; /* in its list */
	enum tagged_state state;
	uint32_t id;      /* of the offer */
	uint64_t moved;   /* bytes */
	uint64_t reading; /* bytes that a read under way will add to that */
	/* Of a send: the last message that has to be released. Of a receive:
	 * the message with the reference. */
	uint64_t seq;
	struct tp_ref ref;
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
	bool is_tagged;
	/* A receive without a tag whose source, or whose place among the
	 * receives from it, is not known yet; see src/engine/any_source.h. */
	bool unbound;
	struct tagged_op tagged;
};

#endif
