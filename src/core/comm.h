/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A communicator as one rank sees it: its peers, its position in the order of
 * operations, and whether it still works.
 *
 * Threads: data_path.h says which thread may touch the data path (peers,
 * prepared calls, scratch, operation numbers) when. Any thread may call the
 * functions of fault.h.
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
#include "src/core/data_path.h"
#include "src/core/peer.h"
#include "src/core/redop.h"
#include "transports/transport.h"

#define COMM_MAGIC UINT64_C(0xd1c0aa5e00c0331d)
#define COMM_NAME_BYTES 48
#define COMM_CACHE 64 /* a power of two */

struct device;
struct dicomm_comm;
struct island;
struct transport_access;
struct drift;
struct prepared;
struct rank_addresses;
struct member;
struct member_memory;
struct operation;
struct peer_access;
struct step_ops;
struct tagged;
struct texts;
struct trace_lanes;
struct user_buffer;
struct windows;

/* A bounce buffer holds bytes that were read from a peer until they are
 * reduced, or copied; see src/message/slice.h. */
#define COMM_BOUNCES 16
struct bounce_buffer {
	uint8_t *at;
	/* The message whose bytes it is for; channel NULL: it is free */
	const struct channel *channel;
	uint64_t seq;
};

struct bounce_buffers {
	uint8_t *memory; /* NULL until a buffer is needed */
	struct mem_handles handles;
	struct bounce_buffer of[COMM_BOUNCES];
};

/* Memory for intermediate results of plans. */
struct scratch {
	uint8_t *at;
	size_t bytes;
	bool shared; /* from dicomm_mem_alloc() */
	struct mem_handles handles;
};

/* The cache of prepared calls. */
struct prepared_cache {
	struct prepared *cache[COMM_CACHE]; /* [hash of the call] */
	struct prepared *all;               /* most recent first */
	unsigned n;
};

/* The latest calls. */
struct call_logs {
	struct call_log collective;
	struct call_log *send, *recv; /* [ranks]; by call_pair_number() */
};

/* For which rank this one has waited last, from since_ms to until_ms, and in
 * which call; see wait_chain.h. The control thread reads it. */
struct awaited {
	_Atomic int peer;
	_Atomic uint64_t since_ms, until_ms;
	_Atomic uint64_t number, what, count;
};

/* A registration made by dicomm_comm_register(). The user's handle is a number
 * that no other registration of this process has or had. */
struct registration {
	struct registration *next;
	uintptr_t handle;
	struct mem_handles handles;      /* for host memory */
	struct user_buffer *user_buffer; /* for memory of a device; or NULL */
};

struct registrations {
	pthread_mutex_t lock;
	struct registration *first;
};

/* For this long after the news of a death, calls may still begin; and a call
 * may be this long without progress, at most twice as long. Other ranks may be
 * a little behind; but some may never come, because they wait for the dead
 * rank, or have failed. */
#define PENDING_NS UINT64_C(700000000)

/* A rank has died, which has not broken the communicator yet: calls may need
 * nothing more of that rank. See fault_died(). */
struct pending_death {
	_Atomic uint64_t since_ns; /* 0: there is none */
	_Atomic bool used;         /* a call has begun since, or was running */
	int rank; /* guarded by the lock of the fault, as is the text */
	char text[512];
	uint8_t unused[48];
};
/* So the fields behind it in struct dicomm_comm, which every call reads, keep
 * their places in cache lines. */
_Static_assert(sizeof(struct pending_death) % 64 == 0, "whole cache lines");

struct fault {
	_Atomic int status; /* DICOMM_SUCCESS while the communicator works */
	pthread_mutex_t lock;
	struct pending_death pending;
	int culprit;
	char text[512];
	/* A communicator that is being split off this one. If this one breaks,
	 * the setup of that one ends too: this is how a rank learns that other
	 * ranks will not join it. */
	struct dicomm_comm *forming;
};

/*
 * What a rank does for its peers outside its own calls. poll() never waits;
 * it returns true if something moved. Called by whoever has the data path, also
 * by a thread that borrows it; see cross_progress.h. is_idle(): nothing is
 * under way, so there is nothing to do until a message arrives.
 */
struct comm_service {
	bool (*poll)(struct dicomm_comm *comm);
	bool (*is_idle)(const struct dicomm_comm *comm);
	void (*free)(struct dicomm_comm *comm);
};

struct dicomm_comm {
	uint64_t magic;
	/* Every call reads the following fields. */
	struct data_path path;
	/* Some collectives go by islands. */
	bool has_islands;
	_Atomic int in_island; /* calls of it that go on */
	struct fault fault;
	int rank, ranks;
	const char *ranks_from; /* as in struct control_config */
	struct peer *peers;     /* [ranks]; memory only of those in use */
	/* [ranks], bit i: this rank and that one reach each other by transport
	 * i. They use the lowest-numbered one, so that both choose alike;
	 * otherwise each could wait on another transport. */
	uint8_t *ways;
	/* Size of an inbox: the number of its slots and their bytes, as chosen
	 * by the user or by default. A slice is at most slot_bytes long. */
	uint32_t slots, slot_bytes;
	/* Slot size of transports within the machine; 0: slot_bytes. */
	uint32_t local_slot_bytes;
	/* Slice size in bytes if all ranks read each other's buffers and the
	 * plan has no scratch; 0 if they do not. */
	uint32_t slice_bytes;
	uint64_t lacks;     /* bit t: some rank's device cannot reduce type t */
	struct device *dev; /* NULL: this rank computes on the host */
	/* How the device runs steps; NULL: the host runs them. */
	const struct step_ops *device_ops;
	bool device_memory; /* the user's buffers are device memory */
	/* shares: this rank and some neighbours can access each other's memory
	 * from dicomm_mem_alloc(). only_shared: no other memory may be sent. */
	bool shares, only_shared;
	/* The warning about staging of such memory has been logged. */
	bool logged_staged;
	unsigned spin;        /* polls before the thread yields its core */
	uint64_t collectives; /* number of collectives so far */
	struct prepared_cache prepared;

	/* Set during initialization. */
	int generation; /* of the process; see comm_check() */
	const struct accel *accel;
	int index; /* number of the device */
	char device[32];
	char name[COMM_NAME_BYTES];
	struct member *members;           /* [ranks] */
	struct member_memory *memories;   /* [ranks]; NULL: no rank has any */
	struct texts *recoveries;         /* [ranks]: member_told.recovery */
	struct rank_addresses *addresses; /* of all ranks */
	struct peer_access *peer_access;  /* NULL: all ranks have host memory */
	struct transport_access *transport_access; /* NULL as above */
	struct comm_transport transports[TP_TRANSPORTS];
	/* Why this rank could not open a transport; "" if it could, or did not
	 * try */
	char why_closed[TP_TRANSPORTS][160];
	/* The transport that carries all messages, if there is only one and a
	 * thread can sleep on it; otherwise NULL. */
	struct comm_transport *only_transport;
	/* A transport whose messages pass through the kernel; NULL if there is
	 * none. */
	struct comm_transport *slow_transport;
	struct control *control;
	struct recovery *recovery;
	dicomm_unique_id_t id; /* a secret that all ranks share */
	/* The id that this rank has made to grow the communicator; "": none */
	dicomm_unique_id_t grow_id;
	struct select_table table;
	/* Rates of rank 0; memory_known is true on all ranks from the first
	 * plan of a redistribution on. */
	struct memory_rates memory;
	bool memory_known;
	/* All ranks are on one host, but some pair has no shared memory. Then
	 * each rank counts as a host of its own in the table of links. */
	bool apart;
	struct links *links; /* between hosts; NULL if there is one host */
	/* links_known: from a file, or measured. links_declared: from what
	 * adapters declare. If neither is true, all links count as equal. */
	bool links_known, links_declared;
	/* Several ranks share the link of some host, so the one that would
	 * measure it can only use a part of it. */
	bool links_summed;
	/* Guards the use of links outside the data path, and their
	 * replacement. */
	pthread_mutex_t links_lock;
	uint32_t links_epoch; /* how often links were replaced */
	struct drift *drift;  /* NULL: links are not watched */
	bool deterministic, blocking;
	_Atomic int timeout_ms; /* any thread may set it */
	int warn_late_ms;
	int join_ms; /* time limit of comm_setup(); 0: none */
	/* Shorter messages are sent as data, on every transport. */
	uint64_t map_threshold;
	/* Results of at least this many bytes are written past the caches. */
	uint64_t stream_bytes;
	int node_ranks, node_cores;
	dicomm_config_t config; /* the communicator owns its strings */

	/* Kept between operations. */
	struct scratch scratch;
	struct bounce_buffers bounce_buffers;
	struct operation *last_collective; /* the last one that is queued */
	struct operation *spare;           /* a list of operations to reuse */
	/* Stands for a fast call in its queue, while that lends. */
	struct operation *place;
	struct trace_lanes *trace;          /* NULL without DICOMM_TRACE */
	struct tagged *tagged;              /* NULL until a tag is used */
	const struct comm_service *service; /* NULL: none */
	uint64_t service_moves;  /* how often its poll() has moved something */
	struct windows *windows; /* of src/window; or NULL */
	struct comm_graphs *graphs; /* of src/stream; or NULL */
	struct island *island;      /* of src/island; or NULL */
	/* Called when it breaks, at least once, by the thread that notices; or
	 * NULL */
	void (*on_broken)(struct dicomm_comm *comm);
	/* There is a service. The control thread answers ASK_SIGNALS with
	 * it. */
	_Atomic bool takes_signals;
	/* The last of the receives that wait for their source, or behind one
	 * that does; see src/engine/any_source.c. */
	struct operation *last_unbound;
	/* The rank at which the next search for a source begins. */
	int next_source;
	struct created_op ops[COMM_OPS];
	struct registrations registered;

	struct call_logs logs;
	dicomm_stats_t stats;

	/* A helper thread may run initialization, split and finalization. */
	_Atomic int state; /* enum comm_state */
	_Atomic bool cancelled;
	_Atomic bool ending; /* a thread, or its group, destroys it */
	bool leaving;        /* a group is to finalize it before that */
	pthread_t helper;
	bool has_helper;
	/* Of cross_progress.c, under its lock. other: the next communicator in
	 * its list; served: its thread polls this one; listed: this one is in
	 * the list. */
	struct dicomm_comm *other;
	bool served, listed;
	/* The list of job_info.c, under its lock; link is NULL if this
	 * communicator is not in it */
	struct {
		struct dicomm_comm *next, **link;
		bool told;
	} in_job;

	/* Answers queries about what this rank does. The thread of the data
	 * path writes both. under_way: operations that the engine has begun and
	 * not ended. */
	struct awaited awaited;
	_Atomic unsigned under_way;
};

/* Goes through the open transports of a communicator. */
#define comm_each_transport(w, comm)                      \
	for (__auto_type w = &(comm)->transports[0];      \
	     w < &(comm)->transports[TP_TRANSPORTS]; w++) \
		if (w->device)

enum comm_state { COMM_STARTING, COMM_READY, COMM_FINALIZING, COMM_FINALIZED };

/* What control_query() queries of a peer: its collective of that number; its
 * side of a point-to-point pair; whether it has received message number *
 * TP_CLASSES + class from this rank; for which rank it has waited `number` ms
 * (wait_chain.h); whether it takes signals; the counts of its collective of
 * that number (as hexadecimal text; see call_log_count()). */
enum {
	ASK_COLLECTIVE,
	ASK_SEND,
	ASK_RECV,
	ASK_RECEIVED,
	ASK_AWAITED,
	ASK_SIGNALS,
	ASK_COUNTS
};

/* Replaces the links by which algorithms are selected, and takes ownership of
 * them. All ranks do so before the same operation. */
void comm_set_links(struct dicomm_comm *comm, struct links *links);

/* Copies the caller's options, or the defaults if `from` is NULL. */
dicomm_result_t comm_config_copy(dicomm_config_t *to,
				 const dicomm_config_t *from);
void comm_config_free(dicomm_config_t *config);

/* Copies the counters as they are at some moment. Any thread may call it. */
void comm_counters(const struct dicomm_comm *comm, dicomm_stats_t *counters);

/* From now on, messages of this thread also go to this communicator's log_fn.
 * NULL: to none. */
void comm_listen(const struct dicomm_comm *comm);
/* Passes the error of a refused call on to the log_fn of this communicator, if
 * the handle is valid; not if it is broken, because its log_fn got the fault
 * before. Returns the status. */
dicomm_result_t comm_refused(const struct dicomm_comm *comm,
			     dicomm_result_t status);
/* The same for a call that may have succeeded. */
static inline dicomm_result_t comm_heard(const struct dicomm_comm *comm,
					 dicomm_result_t status)
{
	return __builtin_expect(status == DICOMM_SUCCESS, 1)
		       ? status
		       : comm_refused(comm, status);
}

/* Finds the position of a device on the machine, for transports. */
void comm_place(const struct accel *accel, int index, struct tp_place *place);
/* Returns true if this rank requires that device data never passes through host
 * memory. */
bool comm_never_stages(const struct dicomm_comm *comm);

/* With up to this many ranks, each rank has large buffers for every other
 * one. */
#define COMM_WIDE_RANKS 32
/* The transports that the user allows: "shm" or "^shm,verbs". An empty list
 * allows all except those that must be named. */
const char *comm_transports(const struct dicomm_comm *comm);
bool comm_list_has(const char *list, const struct transport *t);
bool comm_lists(const struct dicomm_comm *comm, const char *transport);
/* comm_wished_slot_bytes() returns the slot size that a transport prefers,
 * unless the user has chosen one; 0: no preference. */
uint32_t comm_wished_slot_bytes(const struct transport *t, int ranks);
void comm_size_slots(const struct dicomm_comm *comm, const struct transport *t,
		     struct tp_config *config);
/* Returns the largest slot_bytes that setup may choose. */
uint32_t comm_most_slot_bytes(const struct dicomm_comm *comm);

/* Returns true if the handle belongs to the parent of this process. */
extern _Atomic int comm_generation;
static inline bool comm_is_child(const struct dicomm_comm *comm)
{
	return comm->generation !=
	       atomic_load_explicit(&comm_generation, memory_order_relaxed);
}

/* Return DICOMM_SUCCESS if the handle can be used; otherwise log the reason.
 * comm_check_handle() accepts a communicator that is broken or not ready,
 * because its resources must still be released. */
dicomm_result_t comm_check_handle(struct dicomm_comm *comm,
				  const char *function);
dicomm_result_t comm_check_slow(struct dicomm_comm *comm, const char *function);

static inline bool fault_is(const struct dicomm_comm *comm)
{
	return atomic_load_explicit(&comm->fault.status,
				    memory_order_relaxed) != DICOMM_SUCCESS;
}

/* Returns true if a rank has died, and has not broken the communicator yet. */
static inline bool fault_is_pending(const struct dicomm_comm *comm)
{
	return atomic_load_explicit(&comm->fault.pending.since_ns,
				    memory_order_relaxed) &&
	       !fault_is(comm);
}

/* Is a thread in the data path, or anything queued? */
static inline bool comm_is_used(const struct dicomm_comm *comm)
{
	return data_path_is_used(&comm->path) || atomic_load(&comm->in_island);
}

/* Returns true if calls may use the handle. */
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
