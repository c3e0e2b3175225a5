/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One call of the public API after its arguments are checked: what the user
 * asked for, in a form that ranks can compare and print.
 */
#ifndef DICOMM_CORE_CALL_H
#define DICOMM_CORE_CALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/plan/algorithm.h"
#include "dicomm.h"

struct call {
	enum coll coll;
	dicomm_datatype_t type;
	dicomm_redop_t op; /* as the user gave it */
	int root;          /* or the peer of a send or receive; else -1 */
	size_t count;      /* elements of one block; 0 for v-collectives */
	int tag;           /* of a send or receive */
	dicomm_status_t *status; /* what a receive tells; or NULL */
	uint8_t scalar[8];       /* of a created operator */
	const void *scalar_at; /* the same, in memory of the device; or NULL */
	const void *send;      /* the user's buffers */
	void *recv;
	/* For each of the two, if it is device memory. Bit i: transport i
	 * reaches all bytes that the call uses; see user_buffer.h. */
	uint8_t transports[2];
	/* For each of the two: the offer that contains all bytes that the call
	 * uses, counted from 1. 0: there is none; see ipc.h. */
	uint8_t offers[2];
	/* For v-collectives; the arrays are in one block that the queue owns.
	 * The counts that all ranks share, [ranks]; NULL for alltoallv: */
	const size_t *counts;
	/* elements and position of each block of a buffer; NULL if uniform */
	const size_t *send_counts, *send_displs;
	const size_t *recv_counts, *recv_displs;
};

/* Hash of what all ranks must agree on */
uint32_t call_signature(const struct call *call, int ranks);
/* "allreduce count 10 float32 sum" */
void call_text(const struct call *call, char *text, size_t len);

/*
 * The latest calls of a communicator, to answer a peer that asks "what was your
 * call number n?". One thread writes (the one that makes the calls), any thread
 * reads. A reader that hits a record while it is replaced sees that number and
 * signature do not match, and drops it.
 */
#define CALL_LOG_ENTRIES 64

struct call_record {
	_Atomic uint64_t number; /* from 1; 0: none */
	_Atomic uint64_t count;
	_Atomic uint64_t what; /* coll, type, op, root, signature packed */
};

struct call_log {
	struct call_record records[CALL_LOG_ENTRIES];
};

static inline size_t call_log_slot(uint64_t number)
{
	return (size_t)((number ^ number >> 37) % CALL_LOG_ENTRIES);
}

/* Number of the n-th call between this rank and a peer */
static inline uint64_t call_pair_number(int peer, uint64_t n)
{
	return (uint64_t)(uint32_t)peer << 40 | n;
}

/* A call without its count, packed */
uint64_t call_log_what(const struct call *call, uint32_t signature);
static inline void call_log_add(struct call_log *log, uint64_t number,
				uint64_t what, uint64_t count)
{
	struct call_record *r = &log->records[call_log_slot(number)];

	atomic_store_explicit(&r->number, 0, memory_order_relaxed);
	/* A reader that sees either of these also sees that the number has
	 * changed. */
	atomic_store_explicit(&r->what, what, memory_order_release);
	atomic_store_explicit(&r->count, count, memory_order_release);
	atomic_store_explicit(&r->number, number, memory_order_release);
}
bool call_log_find(const struct call_log *log, uint64_t number,
		   uint32_t *signature, char *text, size_t len);

#endif
