/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A communicator as one rank sees it: its peers, its place in the order of
 * operations, and whether it still works.
 *
 * Threads. One thread at a time owns the data path (peers, prepared calls,
 * scratch, operation numbers). While `queued` is 0, that is the calling thread;
 * otherwise it is the progress thread (host_stream.c). While neither is in the
 * data path, a thread that waits in another communicator may borrow it for a
 * moment (cross_progress.c). Functions of fault.h may be called by any thread.
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
struct transport_access;
struct drift;
struct prepared;
struct member;
struct operation;
struct peer_access;
struct step_ops;
struct tagged;

/* A bounce buffer holds bytes that were read from a peer until they are
 * reduced. */
#define COMM_BOUNCES 16
struct bounce_buffer {
	uint8_t *at;
	const struct operation *op; /* the operation that uses it; NULL: free */
	uint32_t step;
	uint64_t slice;
};

struct bounce_buffers {
	uint8_t *memory; /* NULL until the first one is needed */
	struct mem_handles handles;
	struct bounce_buffer of[COMM_BOUNCES];
};

/* Memory for the intermediate results of plans */
struct scratch {
	uint8_t *at;
	size_t bytes;
	bool shared; /* from dicomm_mem_alloc() */
	struct mem_handles handles;
};

/* The cache of prepared calls */
struct prepared_cache {
	struct prepared *cache[COMM_CACHE]; /* by hash of the call */
	struct prepared *all;               /* most recent first */
	unsigned n;
};

/* The latest calls */
struct call_logs {
	struct call_log collective;
	struct call_log *send, *recv; /* [ranks], by pair number */
};

struct fault {
	_Atomic int
		status; /* DICOMM_SUCCESS or COMM_BORROWED while all is well */
	pthread_mutex_t lock;
	int culprit;
	char text[512];
	/* A communicator that is being split off this one. If this one breaks,
	 * its setup ends too: that is how a rank learns that others will not
	 * come. */
	struct dicomm_comm *forming;
};

struct dicomm_comm {
	uint64_t magic;
	/* Hot: every call reads these. */
	/* 1 while a thread is in the data path; in a group, the number of its
	 * calls. fault_wait() waits until it is 0. */
	_Atomic int inside;
	_Atomic int queued; /* operations handed to the progress thread */
	struct fault fault;
	int rank, ranks;
	struct peer *peers; /* [ranks] */
	/* Slots of an inbox, by the user's choice or by default. slot_bytes
	 * bounds a slice. */
	uint32_t slots, slot_bytes;
	/* Slot size of transports within the machine, if it differs */
	uint32_t local_slot_bytes;
	/* Slice size if all ranks read each other's buffers and the plan has no
	 * scratch. 0: they do not. */
	uint32_t slice_bytes;
	uint64_t lacks;     /* types that some rank's device cannot reduce */
	struct device *dev; /* NULL: the host */
	/* How a device runs steps. NULL: the host runs them. */
	const struct step_ops *device_ops;
	bool device_memory; /* the user's buffers are device memory */
	/* shares: this rank and some neighbours reach each other's
	 * dicomm_mem_alloc() memory. only_shared: no other memory may be sent.
	 */
	bool shares, only_shared;
	/* The warning that such memory is staged was logged */
	bool logged_staged;
	unsigned spin;        /* polls before the thread yields its core */
	uint64_t collectives; /* collectives so far */
	struct prepared_cache prepared;

	/* Set at init. */
	int generation; /* of the process; see comm_check() */
	const struct accel *accel;
	int index; /* of the device */
	char device[32];
	char name[COMM_NAME_BYTES];
	struct member *members; /* [ranks] */
	/* The parts of long addresses that did not fit into struct
	 * rank_address: address_rest bytes for each rank. */
	uint8_t *address_rests;
	uint32_t address_rest;
	struct peer_access *peer_access; /* NULL: all ranks have host memory */
	struct transport_access *transport_access; /* the same */
	struct comm_transport transports[COMM_TRANSPORTS];
	/* The transport that carries all messages, if there is only one and a
	 * thread can sleep on it. Otherwise NULL. */
	struct comm_transport *only_transport;
	/* A transport whose messages pass through the kernel. NULL: there is
	 * none. */
	struct comm_transport *slow_transport;
	struct control *control;
	struct recovery *recovery;
	dicomm_unique_id_t id; /* a secret that all ranks share */
	struct select_table table;
	/* All ranks are on one host, but some pair has no shared memory. Then
	 * each rank counts as a host of its own in the table of links. */
	bool apart;
	struct links *links; /* between hosts; NULL if there is one host */
	/* known: from a file or measured. declared: from what adapters say.
	 * Neither: all links count as equal. */
	bool links_known, links_declared;
	/* Several ranks share the link of some host, and only one of them would
	 * measure it. */
	bool links_summed;
	/* Taken to use links outside the data path, and to replace them */
	pthread_mutex_t links_lock;
	uint32_t links_epoch; /* how often they were replaced */
	struct drift *drift;  /* NULL: links are not watched */
	bool deterministic, blocking;
	int timeout_ms, warn_late_ms;
	int join_ms; /* bound of comm_setup() */
	uint64_t map_threshold;
	/* Results of at least this size bypass the caches */
	uint64_t stream_bytes;
	int node_ranks, node_cores;
	dicomm_config_t config; /* the communicator owns its strings */

	/* Kept between operations. */
	struct scratch scratch;
	struct bounce_buffers bounce_buffers;
	struct operation *last_collective; /* queued */
	struct operation *spare;           /* a list */
	struct tagged *tagged;             /* NULL until there is a tag */
	/* Receives that wait for one from any source, which is the first */
	struct operation *unbound;
	int next_source; /* the first rank to look at */
	struct created_op ops[COMM_OPS];
	_Atomic int registrations;

	struct call_logs logs;
	dicomm_stats_t stats;

	/* State. A helper thread may run init, split and finalize. */
	_Atomic int state; /* enum comm_state */
	_Atomic bool cancelled;
	pthread_t helper;
	bool has_helper;
	struct dicomm_comm
		*other; /* the next in the list of cross_progress.c */
};

enum comm_state { COMM_STARTING, COMM_READY, COMM_FINALIZING, COMM_FINALIZED };

/* Replace the links by which algorithms are selected. All ranks do so before
 * the same operation. */
void comm_set_links(struct dicomm_comm *comm, struct links *links);

/* Copy the caller's options, or the defaults if there are none. */
dicomm_result_t comm_config_copy(dicomm_config_t *to,
				 const dicomm_config_t *from);
void comm_config_free(dicomm_config_t *config);

/* From now on, messages of this thread go to this communicator's log_fn. NULL:
 * to none. */
void comm_listen(const struct dicomm_comm *comm);

/* Position of that device on the machine, for transports */
void comm_place(const struct accel *accel, int index, struct tp_place *place);
/* Did this rank ask that device data never passes through host memory? */
bool comm_never_stages(const struct dicomm_comm *comm);

/* Up to this many ranks, each keeps large buffers for every other one. */
#define COMM_WIDE_RANKS 32
/* The transports that the user allows: "shm", "^shm,verbs"; empty: all but
 * those that have to be named. */
const char *comm_transports(const struct dicomm_comm *comm);
bool comm_list_has(const char *list, const struct transport *t);
bool comm_lists(const struct dicomm_comm *comm, const char *transport);
/* The slot size that a transport prefers, unless the user chose one. 0: none.
 */
uint32_t comm_wished_slot_bytes(const struct transport *t, int ranks);
void comm_size_slots(const struct dicomm_comm *comm, const struct transport *t,
		     struct tp_config *config);
/* The largest slot_bytes that setup can choose */
uint32_t comm_most_slot_bytes(const struct dicomm_comm *comm);

/* Does the handle belong to the parent of this process? */
extern _Atomic int comm_generation;
static inline bool comm_is_child(const struct dicomm_comm *comm)
{
	return comm->generation !=
	       atomic_load_explicit(&comm_generation, memory_order_relaxed);
}

/* Log why the handle cannot be used; SUCCESS if it can. comm_check_handle()
 * accepts a communicator that is broken or not ready, because it still has to
 * release what it owns. */
dicomm_result_t comm_check_handle(struct dicomm_comm *comm,
				  const char *function);
dicomm_result_t comm_check_slow(struct dicomm_comm *comm, const char *function);

/* Value of fault.status while another thread polls the transports of this
 * communicator (cross_progress.c). Faults are positive. */
#define COMM_BORROWED (-1)

static inline bool fault_is(const struct dicomm_comm *comm)
{
	return atomic_load_explicit(&comm->fault.status, memory_order_relaxed) >
	       DICOMM_SUCCESS;
}

/* Wait until a borrowed communicator is given back. False: it is broken. */
bool comm_enter_slow(struct dicomm_comm *comm);

/*
 * Enter and leave the data path. A thread stores `inside` and then loads the
 * fault, which would need a fence. fence_all() fences both sides from the other
 * thread by membarrier(2), so a call pays nothing for it.
 */
static inline bool comm_enter(struct dicomm_comm *comm)
{
	atomic_store_explicit(&comm->inside, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&fence_needed, memory_order_relaxed))
		atomic_thread_fence(memory_order_seq_cst);
	/* Acquire: see what a thread did that had borrowed the data path. */
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

/* The same for each call of a group, in any order. The last call to leave
 * leaves the data path. */
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

/* May calls use the handle? */
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
