/* SPDX-License-Identifier: BSD-3-Clause */
/* One step of an operation on one slice: a message, a copy or a reduction. */
#ifndef DICOMM_ENGINE_STEP_H
#define DICOMM_ENGINE_STEP_H

#include "src/core/operation.h"
#include "src/engine/prepared.h"

/* Callbacks of the schedule; their context is the operation. */
extern const struct schedule_io step_io;

/* A span on one slice, as an address for the rank's device. */
struct piece {
	uint8_t *at;
	size_t n, bytes;
};
struct piece step_locate(const struct operation *op, const struct span *s,
			 uint64_t k);
/* Returns the signature of the step's message. */
uint32_t step_signature(const struct operation *op, const struct step *step);

/* step_send() sends bytes that the host can access. They must not change until
 * step_sent() returns SCHEDULE_DONE. */
enum schedule_result step_send(struct operation *op, const struct step *step,
			       uint32_t s, uint64_t k, uint64_t seq);
enum schedule_result step_sent(struct operation *op, const struct step *step,
			       uint64_t seq);

/* A receive step on one slice, while its message is searched. */
struct receive {
	struct operation *op;
	const struct step *step;
	struct peer *peer;
	struct flow *flow;
	uint32_t s;
	uint64_t k, seq;
	struct piece dst;
	/* Where to read the bytes to; NULL: to dst, or to `bounce`. */
	uint8_t *room;
	/* The bounce buffer from which they are reduced, or NULL. */
	struct bounce_buffer *bounce;
	const void *src; /* the bytes; equal to dst.at if they are in place */
	bool mapped; /* they are in memory of the sender: message_intact() */
	bool seen;   /* the rank's device loads from there */
};
/* Looks for slice k. Returns SCHEDULE_DONE if its bytes are at src,
 * SCHEDULE_POSTED if they are being read, and SCHEDULE_AGAIN if it has not
 * arrived. */
enum schedule_result step_find(struct receive *r);
/* As step_find(), for a peer with peer access, whose message may be a memory
 * reference. */
enum schedule_result step_find_ref(struct receive *r);

/* Returns DICOMM_SUCCESS if the read for slice k has finished,
 * DICOMM_IN_PROGRESS if not. in_place says that it went to its final place,
 * perhaps together with later slices. */
dicomm_result_t step_arrived(struct operation *op, const struct step *step,
			     uint32_t s, uint64_t k, uint64_t seq,
			     bool in_place);

/* What a device does differently from the host. The host has NULL for the last
 * three functions, because its steps are done when they return. */
struct step_ops {
	enum schedule_result (*local)(struct operation *op,
				      const struct step *step, uint32_t s,
				      uint64_t k);
	enum schedule_result (*send)(struct operation *op,
				     const struct step *step, uint32_t s,
				     uint64_t k, uint64_t seq);
	/* Handles a message that may have arrived and is not empty. */
	enum schedule_result (*recv)(struct receive *r);
	/* sent() and received() tell whether a posted step is done. */
	enum schedule_result (*sent)(struct operation *op,
				     const struct step *step, uint32_t s,
				     uint64_t k, uint64_t seq);
	enum schedule_result (*received)(struct operation *op,
					 const struct step *step, uint32_t s,
					 uint64_t k, uint64_t seq);
	/* Queues work that is no step. */
	dicomm_result_t (*work)(struct dicomm_comm *comm,
				const struct local_work *work);
	/* Checks how far the device's stream has come. */
	dicomm_result_t (*progress)(struct dicomm_comm *comm, bool *moved);
	/* Called when all steps of the operation are done or queued. Tells
	 * whether the device has finished them. */
	enum schedule_result (*end)(struct operation *op);
	/* Waits until the stream is empty, and gives up the messages in staging
	 * buffers. Called for a communicator that is broken or ends. */
	void (*quiesce)(struct dicomm_comm *comm);
};

/* Counts a received message. */
void step_count(struct operation *op, const struct step *step, size_t bytes,
		bool staged);

/* Returns what this operation's receivers do with a message. */
enum tp_want step_want(const struct prepared *prep);
/* Finds a bounce buffer for bytes that cannot be read to their final place.
 * *out is NULL if all are in use. A buffer is free if its op is NULL. */
dicomm_result_t step_bounce(struct dicomm_comm *comm,
			    struct bounce_buffer **out);
/* Releases what is held for slices that will not finish. */
void step_forget(struct operation *op);
/* Breaks the communicator of an operation that cannot go on. */
enum schedule_result step_fail(struct operation *op, dicomm_result_t status,
			       int peer);

#endif
