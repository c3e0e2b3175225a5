/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A communicator as one rank sees it: its peers, its place in the order of
 * operations, and whether it still works.
 *
 * Threads. The data path (peers, cache, scratch, operation numbers) belongs to
 * one thread at a time: the calling one while `queued` is 0, else the progress
 * thread (stream.c); and while neither is in it, for a moment, one that waits
 * in another communicator (others.c). fault.c may be entered from any thread.
 */
#ifndef DICOMM_CORE_COMM_H
#define DICOMM_CORE_COMM_H

#include <pthread.h>
#include <stdatomic.h>

#include "collectives/plan/schedule.h"
#include "collectives/select/select.h"
#include "src/accel/accel.h"
#include "src/boot/control/control.h"
#include "src/boot/control/recovery.h"
#include "src/core/call.h"
#include "src/core/fence.h"
#include "src/core/peer.h"
#include "src/core/redop.h"
#include "transports/transport.h"

#define COMM_MAGIC UINT64_C(0xd1c0aa5e00c0331d)
#define COMM_NAME_BYTES 48
#define COMM_CACHE 64 /* a power of two */

struct device;
struct wire_access;
struct drift;
struct prepared;
struct member;
struct operation;
struct peer_access;
struct step_ops;

/* Bytes that are read from a peer and then reduced wait in one of these. */
#define COMM_BOUNCES 16
struct bounce_buffer {
	uint8_t *at;
	const struct operation *op; /* whose; NULL: free */
	uint32_t step;
	uint64_t slice;
};

struct bounce_buffers {
	uint8_t *memory; /* NULL until one is needed */
	struct mem_handles handles;
	struct bounce_buffer of[COMM_BOUNCES];
};

/* What plans keep between their steps. */
struct scratch {
	uint8_t *at;
	size_t bytes;
	bool shared; /* of dicomm_mem_alloc() */
	struct mem_handles handles;
};

/* Calls made ready. */
struct prepared_cache {
	struct prepared *cache[COMM_CACHE]; /* by hash of the call */
	struct prepared *all;               /* most recent first */
	unsigned n;
};

/* The recent ones. */
struct call_logs {
	struct call_log collective;
	struct call_log *send, *recv; /* of all peers; by pair number */
};

struct fault {
	_Atomic int
		status; /* DICOMM_SUCCESS or COMM_BORROWED while all is well */
	pthread_mutex_t lock;
	int culprit;
	char text[512];
	/* A communicator that is being split off. It ends with this one, by
	 * which the others tell that they do not come. */
	struct dicomm_comm *forming;
};

struct dicomm_comm {
	uint64_t magic;
	/* Hot: read by every call. */
	/* Calls in the data path, of one thread; see fault_wait(). */
	_Atomic int inside;
	_Atomic int queued; /* operations handed to the progress thread */
	struct fault fault;
	int rank, ranks;
	struct peer *peers; /* [ranks] */
	/* As the user chose, or by default; slot_bytes bounds a slice. */
	uint32_t slots, slot_bytes;
	/* Of slots of near wires, if not that. */
	uint32_t local_slot_bytes;
	/* Of slices where all ranks read each other's buffers, and there is no
	 * scratch; 0: they do not. */
	uint32_t slice_bytes;
	uint64_t lacks;     /* of all ranks */
	struct device *dev; /* NULL: the host, which needs none */
	/* How steps are done on it; NULL: by the host. */
	const struct step_ops *device_ops;
	bool device_memory; /* buffers are memory that is not the host's */
	/* Neighbours and this rank reach memory of dicomm_mem_alloc(): some of
	 * them; and no other may be sent. */
	bool shares, only_shared;
	bool logged_staged;   /* that such memory was not sent */
	unsigned spin;        /* polls before yielding the core */
	uint64_t collectives; /* numbered so far */
	struct prepared_cache prepared;

	/* Made at init. */
	int generation; /* of the process; see comm_check() */
	const struct accel *accel;
	int index; /* of the device */
	char device[32];
	char name[COMM_NAME_BYTES];
	struct member *members; /* [ranks] */
	/* What their cards have no room for, so many bytes of each. */
	uint8_t *address_rests;
	uint32_t address_rest;
	struct peer_access *peer_access; /* NULL: all ranks have host memory, */
	struct wire_access *wire_access; /* and so here */
	struct comm_transport transports[COMM_TRANSPORTS];
	/* All messages between ranks come by it, and it can be slept on; NULL:
	 * there is no such one. */
	struct comm_transport *only_transport;
	/* Some come through the kernel; NULL: none does. */
	struct comm_transport *slow_transport;
	struct control *control;
	struct recovery *recovery;
	dicomm_unique_id_t id; /* a secret that all ranks share */
	struct select_table table;
	/* All are on one host, and some pair does not meet in its memory: there
	 * are links as if each had a host of its own. */
	bool apart;
	struct links *links; /* between hosts; NULL where there is one */
	/* By a file, or measured; or as adapters say; else all count alike. */
	bool links_known, links_declared;
	/* Some way is that of several ranks, of which one would measure it. */
	bool links_summed;
	/* Held by who uses them outside the data path, and to replace them. */
	pthread_mutex_t links_lock;
	uint32_t links_epoch; /* how often they were replaced */
	struct drift *drift;  /* NULL: nobody watches them */
	bool deterministic, blocking;
	int timeout_ms, warn_late_ms;
	int join_ms; /* bound of comm_setup() */
	uint64_t map_threshold;
	uint64_t stream_bytes; /* results from here on bypass the caches */
	int node_ranks, node_cores;
	dicomm_config_t config; /* strings owned by the communicator */

	/* Kept between operations. */
	struct scratch scratch;
	struct bounce_buffers bounce_buffers;
	struct operation *last_collective; /* queued */
	struct operation *spare;           /* a list */
	struct created_op ops[COMM_OPS];
	_Atomic int registrations;

	struct call_logs logs;
	dicomm_stats_t stats;

	/* Life: init, split and finalize may run in a helper thread. */
	_Atomic int state; /* enum comm_state */
	_Atomic bool cancelled;
	pthread_t helper;
	bool has_helper;
	struct dicomm_comm *other; /* the next; see others.c */
};

enum comm_state { COMM_STARTING, COMM_READY, COMM_FINALIZING, COMM_FINALIZED };

/* Select by other links from now on; all ranks before the same operation. */
void comm_set_links(struct dicomm_comm *comm, struct links *links);

/* Options of the caller, or none, with strings of their own. */
dicomm_result_t comm_config_copy(dicomm_config_t *to,
				 const dicomm_config_t *from);
void comm_config_free(dicomm_config_t *config);

/* Messages of this thread are about that communicator from now on, for its
 * owner's log_fn; NULL: about none. */
void comm_listen(const struct dicomm_comm *comm);

/* Where a rank on that device is. */
void comm_place(const struct accel *accel, int index, struct tp_place *place);
/* Does this rank refuse that data of devices passes through host memory? */
bool comm_never_stages(const struct dicomm_comm *comm);

/* Ranks up to which each may keep much memory for each other. */
#define COMM_WIDE_RANKS 32
/* The transports that the user allows: "shm", "^shm,verbs"; empty: all. */
const char *comm_transports(const struct dicomm_comm *comm);
bool comm_list_has(const char *list, const char *transport);
bool comm_lists(const struct dicomm_comm *comm, const char *transport);
/* The slots that a transport asks for, unless the user chose; 0: any. */
uint32_t comm_wished_slot_bytes(const struct transport *t, int ranks);
void comm_size_slots(const struct dicomm_comm *comm, const struct transport *t,
		     struct tp_config *config);
/* The most that slot_bytes may become while the ranks meet. */
uint32_t comm_most_slot_bytes(const struct dicomm_comm *comm);

/* Does the handle belong to the process that forked this one? */
extern _Atomic int comm_generation;
static inline bool comm_is_child(const struct dicomm_comm *comm)
{
	return comm->generation !=
	       atomic_load_explicit(&comm_generation, memory_order_relaxed);
}

/* Why the handle cannot be used, logged; SUCCESS if it can. The former lets
 * pass a broken communicator, or one not ready: it still gives back what it
 * holds. */
dicomm_result_t comm_check_handle(struct dicomm_comm *comm,
				  const char *function);
dicomm_result_t comm_check_slow(struct dicomm_comm *comm, const char *function);

/* In the place of a fault: another thread polls its wires (others.c). Faults
 * are positive. */
#define COMM_BORROWED (-1)

static inline bool fault_is(const struct dicomm_comm *comm)
{
	return atomic_load_explicit(&comm->fault.status, memory_order_relaxed) >
	       DICOMM_SUCCESS;
}

/* Where it is lent, wait until it is back. False: it is broken. */
bool comm_enter_slow(struct dicomm_comm *comm);

/*
 * Enter and leave the data path. Storing `inside` and then loading the fault
 * would need a fence; fence_all() supplies it for both sides by
 * membarrier(2), so that the call pays nothing.
 */
static inline bool comm_enter(struct dicomm_comm *comm)
{
	atomic_store_explicit(&comm->inside, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&fence_needed, memory_order_relaxed))
		atomic_thread_fence(memory_order_seq_cst);
	/* Behind what another thread did that had borrowed it. */
	if (__builtin_expect(atomic_load_explicit(&comm->fault.status,
						  memory_order_acquire) ==
				     DICOMM_SUCCESS,
			     1))
		return true;
	return comm_enter_slow(comm);
}

static inline void comm_leave(struct dicomm_comm *comm)
{
	atomic_store_explicit(&comm->inside, 0, memory_order_release);
}

/* The same for each call of a group, in any order: the last to leave leaves the
 * data path. */
static inline void comm_enter_one(struct dicomm_comm *comm)
{
	int n = atomic_load_explicit(&comm->inside, memory_order_relaxed);

	comm_enter(comm);
	atomic_store_explicit(&comm->inside, n + 1, memory_order_relaxed);
}

static inline void comm_leave_one(struct dicomm_comm *comm)
{
	int n = atomic_load_explicit(&comm->inside, memory_order_relaxed);

	atomic_store_explicit(&comm->inside, n - 1, memory_order_release);
}

/* Is the handle one that calls may use? */
static inline bool comm_usable(const struct dicomm_comm *comm)
{
	return __builtin_expect(
		comm && comm->magic == COMM_MAGIC && !comm_is_child(comm) &&
			!fault_is(comm) &&
			atomic_load_explicit(&comm->state,
					     memory_order_acquire) ==
				COMM_READY,
		1);
}

static inline dicomm_result_t comm_check(struct dicomm_comm *comm,
					 const char *function)
{
	return comm_usable(comm) ? DICOMM_SUCCESS
				 : comm_check_slow(comm, function);
}

#endif
