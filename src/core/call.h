/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One call of the public API, with its arguments checked, in a form that ranks
 * can compare and print.
 */
#ifndef DICOMM_CORE_CALL_H
#define DICOMM_CORE_CALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/plan/algorithm.h"
#include "dicomm.h"

struct accel_stream;
struct operation_kind;
struct window_call;

/*
 * Work for this rank only, in the order of its operations. On a device, run()
 * queues the work on that stream; on the host (stream NULL) it does the work.
 * Whoever makes the struct keeps it until the work has run.
 */
struct local_work {
	dicomm_result_t (*run)(const struct local_work *work,
			       struct accel_stream *stream);
};

/* What a call does: a collective, with the number of its enum coll, or one of
 * these. */
enum call_function {
	/* With one other rank */
	CALL_SEND = COLL_KINDS,
	CALL_RECV,
	/* With none */
	CALL_REDUCE_LOCAL,
	/* One-sided */
	CALL_PUT_SIGNAL,
	CALL_SIGNAL,
	CALL_WAIT_SIGNAL,
	CALL_GET,
	CALL_LOCAL_WORK, /* of this library, with no other rank */
	CALL_FUNCTIONS
};

/* The ranks of a communicator that do a collective among themselves, while the
 * others do it among others, or not at all. All ranks of the communicator make
 * the call, since they count their collectives. Whoever makes the struct keeps
 * it until no prepared call can use it any more: as long as the
 * communicator. */
struct call_group {
	int rank, ranks;    /* this rank's number among them */
	const uint32_t *of; /* [ranks]: their ranks of the communicator */
	const struct links *links; /* between them; NULL: one host */
};

struct call {
	const struct operation_kind *kind; /* of its operation */
	unsigned function;                 /* enum coll or enum call_function */
	dicomm_datatype_t type;
	dicomm_redop_t op; /* the operator that the user passed */
	int root;     /* the root, or the peer of a send or receive; -1: none */
	size_t count; /* elements of one block; 0 for v-collectives */
	int tag;      /* of a send or receive */
	/* Where a receive stores its source, tag and count; or NULL. */
	dicomm_status_t *status;
	uint8_t scalar[8];     /* scalar of an operator that the user created */
	const void *scalar_at; /* the scalar in device memory, or NULL */
	const void *send;      /* the user's buffers */
	void *recv;
	/* For send and for recv, if it is device memory: bit i says that
	 * transport i reaches all bytes that the call uses; see
	 * user_buffer.h. */
	uint8_t transports[2];
	/* For send and for recv: the offer that contains all bytes that the
	 * call uses, counted from 1; 0 if there is none; see ipc.h. */
	uint8_t offers[2];
	/* For v-collectives. The arrays are in one allocation that the queue
	 * owns. counts[ranks] are the counts that all ranks share; NULL if only
	 * pairs of ranks share one (coll_counts_in_pairs). */
	const size_t *counts;
	/* Elements of each block of a buffer, and its position in bytes from
	 * the buffer's address; NULL if all blocks are alike. Blocks that the
	 * user gave as a list of addresses are counted from the lowest one. */
	const size_t *send_counts, *send_displs;
	const size_t *recv_counts, *recv_displs;
	const struct local_work *work; /* of local_kind */
	/* One-sided; whoever makes it keeps it until the operation ends. */
	struct window_call *window;
	/* NULL: of all ranks. Root and blocks are counted among the group, and
	 * the result is never divided or scaled by the group's size: an average
	 * is of all ranks. */
	const struct call_group *among;
};

/* Return this rank's number among those of the call, and their number; `rank`
 * and `ranks` are those of the communicator. */
static inline int call_rank(const struct call *call, int rank)
{
	return call->among ? call->among->rank : rank;
}

static inline int call_ranks(const struct call *call, int ranks)
{
	return call->among ? call->among->ranks : ranks;
}

/* Returns the elements that pass to a peer (out) or from it, in a collective
 * whose ranks know them in pairs. A rank that is not the root of a gatherv or
 * scatterv has one block only. */
static inline size_t call_pair_count(const struct call *call, int peer,
				     bool out)
{
	const size_t *n = out ? call->send_counts : call->recv_counts;

	return n[call->function == COLL_ALLTOALLV ||
				 out == (call->function == COLL_SCATTERV)
			 ? peer
			 : 0];
}

/* Those of coll.c, for all functions */
const char *call_name(unsigned function);
bool call_reduces(unsigned function);
bool call_rooted(unsigned function);
void call_layout(unsigned function, int rank, int ranks, int root,
		 uint32_t *send_blocks, uint32_t *recv_blocks);

/* Returns the hash of everything on which all ranks must agree. */
uint32_t call_signature(const struct call *call, int ranks);
/* Writes the call as text, such as "allreduce count 10 float32 sum". */
void call_text(const struct call *call, char *text, size_t len);

/*
 * The latest calls of a communicator, to answer the query of a peer for call
 * number n. The thread that makes the calls writes; any thread reads. If a
 * record is replaced while a reader reads it, the reader notices that the
 * number has changed, and drops the record.
 */
#define CALL_LOG_ENTRIES 64

struct call_record {
	_Atomic uint64_t number; /* counted from 1; 0: the record is empty */
	_Atomic uint64_t count;
	/* function, type, op, root and signature, packed */
	_Atomic uint64_t what;
};

struct call_log {
	struct call_record records[CALL_LOG_ENTRIES];
};

static inline size_t call_log_slot(uint64_t number)
{
	return (size_t)((number ^ number >> 37) % CALL_LOG_ENTRIES);
}

/* Returns the number of the n-th call between this rank and a peer. */
static inline uint64_t call_pair_number(int peer, uint64_t n)
{
	return (uint64_t)(uint32_t)peer << 40 | n;
}

/* Packs a call without its count. */
uint64_t call_log_what(const struct call *call, uint32_t signature);
/* Returns the count to log: that of the call. If all ranks share an array of
 * counts, it is their sum and the sum of rank times count, packed. */
uint64_t call_log_count(const struct call *call, int ranks);
static inline void call_log_add(struct call_log *log, uint64_t number,
				uint64_t what, uint64_t count)
{
	struct call_record *r = &log->records[call_log_slot(number)];

	atomic_store_explicit(&r->number, 0, memory_order_relaxed);
	/* A reader that sees one of these new values also sees that the number
	 * has changed. */
	atomic_store_explicit(&r->what, what, memory_order_release);
	atomic_store_explicit(&r->count, count, memory_order_release);
	atomic_store_explicit(&r->number, number, memory_order_release);
}
bool call_log_find(const struct call_log *log, uint64_t number,
		   uint32_t *signature, char *text, size_t len);
/* Returns the number of the latest call and its other fields as they were
 * logged; 0: there is none. Not for the logs of pairs of ranks. */
uint64_t call_log_latest(const struct call_log *log, uint64_t *what,
			 uint64_t *count);
/* Writes the text of a logged call, its function, and the bytes of one block
 * (0 if each rank has a count). */
void call_logged_text(uint64_t what, uint64_t count, char *text, size_t len);
unsigned call_logged_function(uint64_t what);
uint64_t call_logged_bytes(uint64_t what, uint64_t count);
/* Returns true if that call is logged, and has a count for each rank. */
bool call_log_counts(const struct call_log *log, uint64_t number,
		     uint64_t *counts);
/* Compares the counts of this call with those that another rank has logged.
 * Returns true if exactly one differs; then writes its rank and its value
 * there. */
bool call_odd_count(const struct call *call, int ranks, uint64_t counts,
		    uint32_t signature, int *rank, size_t *count);

#endif
