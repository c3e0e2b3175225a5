/* SPDX-License-Identifier: BSD-3-Clause */
/* One step of an operation on one slice: a message, a copy or a reduction. */
#ifndef DICOMM_ENGINE_STEP_H
#define DICOMM_ENGINE_STEP_H

#include "src/core/operation.h"
#include "src/engine/prepared.h"

/* Callbacks of the schedule; their context is the operation. */
extern const struct schedule_io step_io;

/* A span on one slice, as memory of the rank's device */
struct piece {
	uint8_t *at;
	size_t n, bytes;
};
struct piece step_locate(const struct operation *op, const struct span *s,
			 uint64_t k);
/* Signature of the step's message */
uint32_t step_signature(const struct operation *op, const struct step *step);

/* Send bytes that the host can access and that stay unchanged until step_sent()
 * returns DONE. */
enum schedule_result step_send(struct operation *op, const struct step *step,
			       uint32_t s, uint64_t k, uint64_t seq);
enum schedule_result step_sent(struct operation *op, const struct step *step,
			       uint64_t seq);

/* A receive step on one slice, while its message is looked for */
struct receive {
	struct operation *op;
	const struct step *step;
	struct peer *peer;
	struct flow *flow;
	uint32_t s;
	uint64_t k, seq;
	struct piece dst;
	uint8_t *room; /* where a read goes; NULL: to dst or... */
	struct bounce_buffer
		*bounce; /* ...the bounce buffer from which it is reduced */
	const void *src; /* the bytes; equal to dst.at if they are in place */
	bool mapped;     /* they are in memory of the sender */
	bool seen;       /* the rank's device loads from there */
};
/* Has slice k arrived? DONE: its bytes are at src. POSTED: they are being read.
 */
enum schedule_result step_find(struct receive *r);
/* The same for a peer with peer access, whose message may also be a memory
 * reference. */
enum schedule_result step_find_ref(struct receive *r);

/* Call after bytes with receive.mapped were used: was the memory still the
 * sender's message? Errors: REMOTE. */
dicomm_result_t step_intact(const struct peer *peer);

/* Has the read for slice k finished? SUCCESS or IN_PROGRESS. in_place: it went
 * to its final place, maybe together with later slices. */
dicomm_result_t step_arrived(struct operation *op, const struct step *step,
			     uint32_t s, uint64_t k, uint64_t seq,
			     bool in_place);

/* What a device does differently from the host. The host sets the last three to
 * NULL, because its steps are done when they return. */
struct step_ops {
	enum schedule_result (*local)(struct operation *op,
				      const struct step *step, uint32_t s,
				      uint64_t k);
	enum schedule_result (*send)(struct operation *op,
				     const struct step *step, uint32_t s,
				     uint64_t k, uint64_t seq);
	/* A message that may have arrived and is not empty */
	enum schedule_result (*recv)(struct receive *r);
	/* Is what was POSTED done? */
	enum schedule_result (*sent)(struct operation *op,
				     const struct step *step, uint32_t s,
				     uint64_t k, uint64_t seq);
	enum schedule_result (*received)(struct operation *op,
					 const struct step *step, uint32_t s,
					 uint64_t k, uint64_t seq);
	/* Check how far the device's stream has come. */
	dicomm_result_t (*progress)(struct dicomm_comm *comm, bool *moved);
	/* All steps of the operation are done or queued. Has the device
	 * finished them? */
	enum schedule_result (*end)(struct operation *op);
	/* Wait until the stream is empty, and give up the messages in staging
	 * buffers. For a communicator that is broken or ends. */
	void (*quiesce)(struct dicomm_comm *comm);
};

/* Count a received message. */
void step_count(struct operation *op, const struct step *step, size_t bytes,
		bool staged);

/* Start to read len bytes at offset `at` of the reference. IN_PROGRESS: it is
 * under way. */
dicomm_result_t step_read(struct dicomm_comm *comm, struct peer *peer,
			  enum tp_class c, uint64_t seq,
			  const struct tp_ref *ref, uint64_t at, void *into,
			  uint64_t len);
/* What this operation's receivers do with a message */
enum tp_want step_want(const struct prepared *prep);
/* A bounce buffer for bytes that cannot be read to their final place. *out is
 * NULL if all are in use. Free when its op is NULL. */
dicomm_result_t step_bounce(struct dicomm_comm *comm,
			    struct bounce_buffer **out);
/* Release what slices hold that will not finish. */
void step_forget(struct operation *op);
/* Break the communicator of an operation that cannot go on. */
enum schedule_result step_fail(struct operation *op, dicomm_result_t status,
			       int peer);

#endif
