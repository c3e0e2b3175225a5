/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A prepared call: the algorithm, its plan, the slices of the message and the
 * reduction kernels. The communicator caches it, so that a repeated call finds
 * it at once (prepare.h). Calls with counts for each rank are prepared each
 * time.
 */
#ifndef DICOMM_ENGINE_PREPARED_H
#define DICOMM_ENGINE_PREPARED_H

#include "collectives/plan/plan.h"
#include "src/accel/reduce/reduce.h"
#include "src/core/comm.h"
#include "src/message/send.h"

/* Most bytes of scratch for all slices that are under way at the same time. */
#define PREPARED_SCRATCH (UINT64_C(32) << 20)

/* Most steps of a plan that the fast path runs slice by slice */
#define FAST_SLICED_STEPS 32

/* How many slices a rank sends beyond the one that it receives next */
#define FAST_AHEAD 2

/* Calls with equal keys share a prepared call. */
struct call_key {
	uint8_t function, type;
	bool in_place;
	int32_t op, root;
	uint32_t epoch; /* comm.links_epoch when it was prepared */
	const struct call_group *among;
	uint64_t count;
};

/* A step of the fast path, on a whole message, with spans as byte offsets. */
struct fast_step {
	struct message_target target;
	uint32_t spin; /* checks for the message before a poll */
	uint8_t kind;
	uint8_t a_buffer, b_buffer, dst_buffer;
	uint32_t number; /* of the message, counted from the channel's base */
	struct channel *channel;
	struct peer *peer;
	size_t a, b, dst; /* byte offsets */
	size_t bytes, n;
	bool stream; /* write the result past the caches */
};

/* By how much an operation advances the bases of a channel, per slice. */
struct pair {
	struct peer *peer;
	uint32_t out, in;
};

struct prepared {
	struct call_key key;
	uint32_t signature;
	/* It is in the cache. Otherwise it is freed with its operation. */
	bool kept;
	unsigned users; /* number of operations that use it */
	enum tp_class class;
	const struct algorithm *algorithm; /* NULL: point to point */
	struct plan plan;
	struct pair *pairs;
	uint32_t npairs;

	size_t elem_bytes, align; /* align: elements in a cache line */
	uint64_t longest;         /* elements of the longest block */
	uint64_t slice;           /* elements of a slice */
	uint64_t slices;
	uint64_t window;
	/* Predicted duration; 0: this call's duration is not watched; see
	 * drift.h. */
	uint64_t expected_ns;
	size_t scratch_bytes;
	/* Bytes of the largest message of the first slice. */
	size_t largest_message;
	/* The result is larger than the caches, so it is written past them,
	 * unless a later step reads it. */
	bool stream_out;
	bool *read_later; /* [step]: a later step reads the result */

	bool needs_mem_reg; /* a transport must reach the call's buffers */
	enum tp_want want;  /* what its receivers do with a message */
	/* Incast: several ranks send large messages to this one over a link
	 * that they share. */
	bool incast;

	/* The steps of the fast path, if may_be_fast: small messages, whole
	 * messages by reference, or one hop slice by slice. */
	struct fast_step *fast_steps;
	uint32_t nfast;
	bool is_fast;
	bool may_be_fast; /* once its channels are connected */
	/* The data to send is ready as a whole and is not written meanwhile. */
	bool may_refer;
	/* There are several slices, and none waits for another one. */
	bool may_slice;
	/* FAST_AHEAD; 0 if each slice is copied or scaled into scratch before
	 * it is sent */
	uint32_t ahead;
	uint64_t fast_sent, fast_sent_bytes, fast_received, fast_received_bytes;
	uint64_t fast_staged_bytes;

	/* For prepared_quick(): the bytes of both buffers, and the distance
	 * recv - send of an in-place call. An odd distance means never in
	 * place. */
	size_t send_bytes, recv_bytes;
	intptr_t in_place_distance;
	uint64_t log_what, log_count; /* for call_log_add() */

	reduce_fn reduce, reduce_stream;
	scale_fn scale;
	divide_fn divide;
	dicomm_redop_t op; /* a built-in operator */
	uint8_t scalar[8];
	const void *scalar_at; /* in device memory; NULL: `scalar` counts */

	/* When it was last used, counted in calls. The oldest one is freed
	 * first. */
	uint64_t used;
	struct prepared *next;
};

static inline unsigned prepared_slot(unsigned function, dicomm_datatype_t type,
				     dicomm_redop_t op, int root,
				     uint64_t count)
{
	uint64_t h = (count + (uint64_t)function * 7 + (uint64_t)type * 131 +
		      (uint64_t)op * 1031 + (uint64_t)(uint32_t)root * 8209) *
		     UINT64_C(0x9e3779b97f4a7c15);

	return (unsigned)(h >> 32) & (COMM_CACHE - 1);
}

/* Returns the cached prepared call for these arguments, if only their pointers
 * have to be checked. Returns NULL if the slow path has to decide. */
static inline struct prepared *
prepared_quick(const struct dicomm_comm *comm, unsigned function,
	       const void *send, const void *recv, size_t count,
	       dicomm_datatype_t type, dicomm_redop_t op, int root)
{
	struct prepared *e =
		comm->prepared
			.cache[prepared_slot(function, type, op, root, count)];
	uintptr_t a = (uintptr_t)send, b = (uintptr_t)recv;

	if (!e || e->key.count != count || e->key.function != function ||
	    e->key.type != type || e->key.op != (int32_t)op ||
	    e->key.root != root || !e->is_fast)
		return NULL;
	if (e->key.in_place != ((intptr_t)(b - a) == e->in_place_distance))
		return NULL;
	if ((!a && e->send_bytes) || (!b && e->recv_bytes))
		return NULL;
	if (!e->key.in_place && a + e->send_bytes > b &&
	    b + e->recv_bytes > a && e->send_bytes && e->recv_bytes)
		return NULL;
	return e;
}

/* Returns the signature of operation `number` of a prepared call. Both ends of
 * a message compare it. */
static inline uint32_t prepared_signature(const struct prepared *prep,
					  uint64_t number)
{
	return prep->signature ^ (uint32_t)(number * 0x9e3779b1u);
}

/* Finds the elements of a span on slice k. For v-collectives, the call gives
 * the layout. */
struct extent {
	size_t at; /* bytes from the start of the buffer */
	size_t n;  /* elements */
};
struct extent prepared_extent(const struct prepared *prep,
			      const struct call *call, const struct span *s,
			      uint64_t k);

/* Computes which bytes of a buffer the call may access: an offset from its
 * start, and a length. */
void call_touches(const struct call *call, int rank, int ranks,
		  enum plan_buffer buffer, size_t *first, size_t *bytes);
/* Returns the elements of the block that contains the span. */
uint64_t prepared_block(const struct prepared *prep, const struct call *call,
			const struct span *s);

/* Returns the bytes of one element of the call. For a barrier, which has no
 * elements, returns 1. */
size_t call_elem_bytes(const struct call *call);

/* Returns true if the call is in place as its collective defines it. */
bool call_in_place(const struct call *call, int rank, int ranks);

#endif
