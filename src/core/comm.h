/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A communicator as one rank sees it: its peers, its place in the order of
 * operations, and whether it still works.
 *
 * Threads. The data path (peers, cache, scratch, operation numbers) belongs to
 * one thread at a time: the calling one while `queued` is 0, else the progress
 * thread (stream.c). fault.c may be entered from any thread.
 */
#ifndef DICOMM_CORE_COMM_H
#define DICOMM_CORE_COMM_H

#include <pthread.h>
#include <stdatomic.h>

#include "collectives/schedule.h"
#include "collectives/select.h"
#include "src/boot/control.h"
#include "src/boot/refuge.h"
#include "src/core/call.h"
#include "src/core/lease.h"
#include "src/accel/accel.h"
#include "transports/transport.h"

#define COMM_MAGIC UINT64_C(0xd1c0aa5e00c0331d)
#define COMM_NAME_BYTES 48
/* Transports at most; no more than peer.wires has bits. */
#define COMM_WIRES 4
#define COMM_CACHE 64 /* a power of two */

struct device;
struct direct;
struct drift;
struct executable;
struct near;
struct operation;
struct reach;

/* Messages of one class to and from one peer. Operations number theirs from
 * the base up, and move the base when they end. */
struct lane {
	uint64_t out_base, in_base;
	uint64_t out_last; /* the last that was put: not all numbers are used */
	struct tp_outbox out; /* out.released: NULL until connected */
	struct tp_inbox in;   /* in.lines: NULL until connected */
	/* All messages up to here are done with; on_query() looks, too. */
	_Atomic uint64_t in_done;
	uint64_t in_mask; /* bit i: message in_done + 1 + i is, too */
	/* The last one of a crowded operation, which its end releases, and of
	 * the crowded ones that this rank has ended; see engine.c. */
	uint64_t in_held, out_settles;
};

struct peer {
	int rank;
	/* Bit i: by wire i both ranks reach each other. They take the first;
	 * one alone must not choose, for the other would wait elsewhere. */
	uint8_t wires;
	const struct transport *transport; /* NULL until opened */
	struct tp_device *device;
	struct tp_peer *tp;
	struct tp_limits limits;
	/* What it sends passes through host memory on the way from its device
	 * to this rank's. */
	bool staged;
	/* Both reach each other's memory: messages may be notes of where the
	 * bytes are; see near.h. */
	bool is_near;
	struct near *near; /* NULL: this side does not */
	/* The wire reaches the memory of the devices of both: all data goes by
	 * reference. */
	bool is_direct;
	struct lane lane[TP_CLASSES];
	/* point to point: calls so far, in call order; last ones queued */
	uint64_t sends, recvs;
	struct operation *last_send, *last_recv;
};

/* A way out of this process, one for each transport in use. */
struct wire {
	const struct transport *transport;
	/* Set once, after the transport: whoever raises a fault stops it. */
	_Atomic(struct tp_device *) device;
};

/* What each rank tells all others when they meet. */
struct member {
	uint64_t host; /* hash of the host's identity */
	int32_t pid;
	int32_t deterministic;
	uint32_t slots, slot_bytes;
	char device[32];
	/* Its buffers are host memory, or as good as that. */
	bool on_host;
	bool never_staged; /* what this rank has asked for */
	/* Bit t: its device reduces no elements of type t. */
	uint64_t lacks;
	/* Stages in the memory of its device, for devices of that kind in
	 * other processes. */
	bool exports;
	struct accel_handle near;
	struct lease_place lease; /* of them */
	struct accel_export page; /* of what else it offers; see ipc.h */
	/* By this ranks of its process find what it lends; 0: nothing */
	uint64_t lent;
	/* Stages in host memory, which its device writes; id 0: none */
	struct accel_export stages;
	char refuge[SOCK_TEXT];             /* where to meet if others die */
	uint64_t fresh;                     /* of this meeting and no other */
	struct tp_blob address[COMM_WIRES]; /* as in transports[] */
};

/* One buffer on all wires. */
struct held {
	struct tp_hold *on[COMM_WIRES];
	unsigned wires; /* bit i: held on wire i */
};

/* Bytes that are read from a peer and then reduced wait in one of these. */
#define COMM_BOUNCES 16
struct bounce {
	uint8_t *at;
	const struct operation *op; /* whose; NULL: free */
	uint32_t step;
	uint64_t slice;
};

struct fault {
	_Atomic int status; /* DICOMM_SUCCESS while all is well */
	pthread_mutex_t lock;
	int culprit;
	char text[512];
	/* A communicator that is being split off. It ends with this one, by
	 * which the others tell that they do not come. */
	struct dicomm_comm *forming;
};

#define COMM_OPS 64
struct created_op {
	bool used;
	unsigned uses;     /* so far; see op_number() */
	dicomm_redop_t op; /* of the latest */
	dicomm_datatype_t type;
	uint8_t scalar[8];
	const void *scalar_at;
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
	/* The same where all ranks read each other's buffers, and there is no
	 * scratch; 0: they do not. */
	uint32_t slice_bytes;
	uint64_t lacks;     /* of all ranks */
	struct device *dev; /* NULL: the host, which needs none */
	/* Neighbours and this rank reach memory of dicomm_mem_alloc(): some of
	 * them; and no other may be sent. */
	bool shares, only_shared;
	bool told_staged;     /* that such memory was not sent */
	unsigned spin;        /* polls before yielding the core */
	uint64_t collectives; /* numbered so far */
	struct executable *cache[COMM_CACHE]; /* by hash of the call */

	/* Made at init. */
	int generation; /* of the process; see comm_check() */
	const struct accel *accel;
	int index; /* of the device */
	char device[32];
	char name[COMM_NAME_BYTES];
	struct member *members; /* [ranks] */
	struct reach *reach;    /* NULL: all ranks have host memory, */
	struct direct *direct;  /* and so here */
	struct wire wires[COMM_WIRES];
	/* All messages between ranks come by it, and it can be slept on; NULL:
	 * there is no such one. */
	struct wire *only_wire;
	/* Some come through the kernel; NULL: none does. */
	struct wire *slow_wire;
	struct control *control;
	struct refuge *refuge;
	dicomm_unique_id_t id; /* a secret that all ranks share */
	struct select_table table;
	struct links *links; /* between hosts; NULL where there is one */
	/* By a file, or measured; or as adapters say; else all count alike. */
	bool links_known, links_declared;
	bool links_summed; /* in part by adapters of ranks that measure nothing
			    */
	/* Held by who uses them outside the data path, and to replace them. */
	pthread_mutex_t links_lock;
	uint32_t links_epoch; /* how often they were replaced */
	struct drift *drift;  /* NULL: nobody watches them */
	bool deterministic, blocking;
	int timeout_ms, warn_late_ms;
	int meet_ms; /* bound of comm_meet() */
	uint64_t map_threshold;
	uint64_t stream_bytes; /* results from here on bypass the caches */
	int node_ranks, node_cores;
	dicomm_config_t config; /* strings owned by the communicator */

	/* Kept between operations. */
	uint8_t *scratch;
	size_t scratch_bytes;
	bool scratch_shared; /* of dicomm_mem_alloc() */
	struct held scratch_held;
	uint8_t *bounce_memory; /* NULL until one is needed */
	struct held bounce_held;
	struct bounce bounces[COMM_BOUNCES];
	struct operation *last_collective; /* queued */
	struct operation *spare;           /* a list */
	struct executable *executables;    /* all, most recent first */
	unsigned nexecutables;
	struct created_op ops[COMM_OPS];
	_Atomic int registrations;

	struct call_log collective_log;
	struct call_log *send_log, *recv_log; /* of all peers; by pair number */
	dicomm_stats_t stats;

	/* Life: init, split and finalize may run in a helper thread. */
	_Atomic int state; /* enum comm_state */
	_Atomic bool cancelled;
	pthread_t helper;
	bool has_helper;
};

enum comm_state { COMM_STARTING, COMM_READY, COMM_FINALIZING, COMM_FINALIZED };

/* Select by other links from now on; all ranks before the same operation. */
void comm_set_links(struct dicomm_comm *comm, struct links *links);

/* Set up the path to a peer, at the first operation that needs it. */
dicomm_result_t comm_peer(struct dicomm_comm *comm, int rank,
			  struct peer **out);
/* Does any wire lead to that rank at this moment? */
bool comm_reaches(struct dicomm_comm *comm, int rank);
/* Those that may reach the memory of devices; in a communicator that does not
 * meet. Each leaves its address with this rank's member. */
dicomm_result_t comm_open_wires_of_devices(struct dicomm_comm *comm);
/* Does a communicator have wires that end at this machine, unless its config
 * says otherwise? */
bool comm_uses_near_wires(void);
/* The wires by which this rank reaches it, as far as open: bit i is wire i. */
uint8_t comm_wires_to(struct dicomm_comm *comm, int rank);
/* The list of those that it may use; is that one of them? */
const char *comm_transports(const struct dicomm_comm *comm);
bool comm_lists(const struct dicomm_comm *comm, const char *transport);
/* Connect the sending side of a lane. */
dicomm_result_t comm_connect_out(struct dicomm_comm *comm, struct peer *peer,
				 enum tp_class c);
/* AGAIN until the peer has begun to send. */
dicomm_result_t comm_connect_in(struct dicomm_comm *comm, struct peer *peer,
				enum tp_class c);
/* Tell all peers what was released: this rank may not call for a while. */
void comm_flush(struct dicomm_comm *comm);

/* NULL: the communicator has none of that number. */
struct created_op *comm_created_op(struct dicomm_comm *comm, dicomm_redop_t op);

/* Make memory reachable by all wires, for as long as it is held. Any thread. */
dicomm_result_t comm_hold(struct dicomm_comm *comm, const void *addr,
			  size_t len, bool written, struct held *held);
void comm_drop(struct dicomm_comm *comm, struct held *held);
/* Page-aligned memory of the library, held on all wires. */
dicomm_result_t comm_memory_get(struct dicomm_comm *comm, size_t bytes,
				const char *what, uint8_t **out,
				struct held *held);
void comm_memory_put(struct dicomm_comm *comm, uint8_t *memory,
		     struct held *held);

/* Options of the caller, or none, with strings of their own. */
dicomm_result_t comm_config_copy(dicomm_config_t *to,
				 const dicomm_config_t *from);
void comm_config_free(dicomm_config_t *config);

/* Messages of this thread are about that communicator from now on, for its
 * owner's log_fn; NULL: about none. */
void comm_listen(const struct dicomm_comm *comm);

/*
 * How a communicator begins. All that may fail at this rank alone comes first:
 * the object, its settings, what it has from its parent if there is one
 * (was[rank]: the rank there), and the thread if it is not blocking. Then it
 * meets the others by the id, or is refused; either ends the start. A blocking
 * one ends when its parent breaks. */
struct comm_start;
dicomm_result_t comm_start_prepare(struct comm_start **out, int nranks,
				   int rank, const dicomm_config_t *config,
				   struct dicomm_comm *parent,
				   const uint32_t *was);
dicomm_result_t comm_start_meet(struct comm_start *start, dicomm_comm_t *out,
				const dicomm_unique_id_t *id);
void comm_start_refuse(struct comm_start *start);
/* Its parts: an empty one with its settings; meeting the other ranks, who come
 * within so long; the end, when nobody uses it any more. */
dicomm_result_t comm_create(struct dicomm_comm **out, int ranks, int rank,
			    const dicomm_config_t *config);
/* Where a rank on that device is. */
void comm_place(const struct accel *accel, int index, struct tp_place *place);
/* Does this rank refuse that data of devices passes through host memory? */
bool comm_never_stages(const struct dicomm_comm *comm);
/* The most that slot_bytes may become while the ranks meet. */
uint32_t comm_most_slot_bytes(const struct dicomm_comm *comm);
/* What it would be of ranks on as many machines like this one. */
uint32_t comm_slot_bytes_apart(int ranks);
dicomm_result_t comm_meet(struct dicomm_comm *comm,
			  const dicomm_unique_id_t *id, int come_ms);
void comm_free(struct dicomm_comm *comm);

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

/* What control_query() asks for: a collective, or the other side's part of a
 * point-to-point pair; or whether it is done with a message from here, of
 * number * TP_CLASSES + class. */
enum { ASK_COLLECTIVE, ASK_SEND, ASK_RECV, ASK_RECEIVED };

/* fault.c: the end of a communicator. */

/* The first cause wins. Tells the other ranks when `tell`. Any thread. */
dicomm_result_t fault_raise(struct dicomm_comm *comm, dicomm_result_t status,
			    int culprit, bool tell, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
/* An abort during init leaves it to the thread of that to tell the others, who
 * may have met already. Tells them again if they know. */
void fault_tell_abort(struct dicomm_comm *comm);
/* The init of `forming` is cut short if comm breaks. NULL: of none any more. */
void fault_share(struct dicomm_comm *comm, struct dicomm_comm *forming);
/* The init of this rank failed, for the reason that was just logged; the others
 * may wait for it. */
dicomm_result_t fault_of_init(struct dicomm_comm *comm, dicomm_result_t status);
/* This rank cannot go on, for the reason that was just logged. Where that
 * touched a peer (-1: not known which), the peer's end may be behind it: the
 * news of it, which names the rank, is waited for a moment. */
dicomm_result_t fault_own(struct dicomm_comm *comm, dicomm_result_t status,
			  int peer);
/* Stop the wires. Every failed call whose buffers others, or wires, may reach
 * does so before it returns. */
void fault_stop_wires(struct dicomm_comm *comm);
/* Status of a broken communicator; its text becomes the last error. */
dicomm_result_t fault_report(struct dicomm_comm *comm);
void fault_text(struct dicomm_comm *comm, char *text, size_t len);
/* Wait until no thread is in the data path. Bounded: everybody in it looks at
 * the fault. */
void fault_wait(struct dicomm_comm *comm);
/* Once for each process, before the first communicator. */
void fault_init(void);
/* Communicators of this process that have broken so far */
extern _Atomic unsigned fault_count;
/* The kernel offers no membarrier(2): who enters must fence itself. */
extern _Atomic bool fault_needs_fence;

static inline bool fault_is(const struct dicomm_comm *comm)
{
	return atomic_load_explicit(&comm->fault.status,
				    memory_order_relaxed) != DICOMM_SUCCESS;
}

/*
 * Enter and leave the data path. Storing `inside` and then loading the fault
 * would need a fence; fault_wait() supplies it for both sides by membarrier(2),
 * so that the call pays nothing.
 */
static inline bool comm_enter(struct dicomm_comm *comm)
{
	atomic_store_explicit(&comm->inside, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&fault_needs_fence, memory_order_relaxed))
		atomic_thread_fence(memory_order_seq_cst);
	return !fault_is(comm);
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
