/* SPDX-License-Identifier: BSD-3-Clause */
/* An operation in progress: a call, its plan, and its state. */
#ifndef DICOMM_CORE_OPERATION_H
#define DICOMM_CORE_OPERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/plan/schedule.h"
#include "src/core/block_runs.h"
#include "src/core/call.h"
#include "src/core/memory.h"
#include "src/core/peer.h"
#include "src/core/wait.h"
#include "transports/transport.h"

struct dicomm_comm;
struct prepared;

/* State of a send or receive with a tag; see src/engine/tagged.h. */
enum tagged_state {
	TAGGED_POSTED,
	/* A send that has put its offer and waits for READY of the receiver. */
	TAGGED_OFFERED,
	/* A receive that has found an offer and has not put READY yet. */
	TAGGED_FOUND,
	TAGGED_MOVING, /* its bytes are being sent, or received */
	/* A receive that reads the memory behind a reference. */
	TAGGED_READING,
	TAGGED_DONE
};

struct tagged_op {
	struct operation *next; /* in the list that it is in */
	enum tagged_state state;
	/* It has had its first turn. Its buffer is not used before, because an
	 * earlier operation of its stream may use the same buffer. */
	bool begun;
	/* A receive whose source was any; if the driver runs it, it is in the
	 * queue of those that look for messages of all peers. */
	bool of_any;
	struct arrival *kept; /* what a receive has got before it has begun */
	uint32_t id;          /* number of its offer */
	uint64_t bytes;       /* length of its message */
	/* Moves the bytes of an offer once both sides are ready */
	union {
		struct message_send out;
		struct message_receive in;
	};
};

/* What becomes of a call: how its operation begins, goes on, and is given
 * up. */
struct operation_kind {
	const char *name;
	/* Gives the operation its place in the order of calls. */
	dicomm_result_t (*post)(struct operation *op);
	/* Gives it a turn, once or more often. SCHEDULE_DONE: it has ended. */
	enum schedule_result (*turn)(struct operation *op, bool *progressed);
	/* Sets f->peer, if it waits for one rank, and f->sending. NULL: it
	 * waits for none. */
	void (*awaits)(const struct operation *op, struct wait_for *f);
	/* Forgets it, as its communicator is broken. NULL: nothing to do. */
	void (*drop)(struct operation *op);
};

struct operation {
	const struct operation_kind *kind;
	struct dicomm_comm *comm;
	struct call call;
	struct prepared *prep;
	struct schedule schedule;
	/* Counts within its class; for point to point, within its pair of
	 * ranks. */
	uint64_t number;
	/* every message carries it, and the receiver compares it */
	uint32_t signature;
	/* Set if the duration is measured; 0: not yet. */
	uint64_t begun_ns, ended_ns;
	/* Of trace.c; 0: not queued, or not begun, while the trace is on. */
	struct {
		uint64_t queued_ns, begun_ns;
		uint64_t range; /* of a profiler, if it has one */
		bool has_range;
	} trace;
	/* Number of steps that were checked for these times. */
	uint32_t looked;
	bool started, done;
	bool ending; /* its last event is in the stream of the device */
	/* The tail of its queue, or NULL, and its neighbours there. It runs
	 * when no other operation is before it; see src/engine/order.h. */
	struct operation **queue, *before, *after;
	/* The item of the driver (src/stream); NULL: the calling thread runs
	 * the operation. */
	void *owner;
	/* Used by order.c */
	struct operation *woken_next;
	_Atomic bool woken;
	/* Used by the driver: neighbours in its list of turns. */
	struct operation *turn_before, *turn_after;
	struct turn_list *turn_list; /* NULL: in none */
	struct message_flow *flows;  /* [step] */
	uint32_t flows_room;
	/* Handles of PLAN_SEND and PLAN_RECV: of the whole buffer, or of its
	 * runs. */
	struct mem_handles handles[2];
	struct block_runs runs[2];
	/* The state of its wait, while the thread waits for another
	 * operation. */
	struct waiter watch;
	struct operation *next;
	struct tagged_op tagged;
};

#endif
