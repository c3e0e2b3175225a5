/* SPDX-License-Identifier: BSD-3-Clause */
/* One step of an operation on one slice: a message, a copy or a reduction. */
#ifndef DICOMM_ENGINE_STEP_H
#define DICOMM_ENGINE_STEP_H

#include "src/core/operation.h"
#include "src/engine/prepared.h"

/* How the schedule of an operation is run; its context is the operation. */
extern const struct schedule_io step_io;

/* A span on a slice, as memory of the rank's device. */
struct piece {
	uint8_t *at;
	size_t n, bytes;
};
struct piece step_locate(const struct operation *op, const struct span *s,
			 uint64_t k);
/* Of a message. */
uint32_t step_signature(const struct operation *op, const struct step *step);

/* Send what lies where the host reaches it, and stays there until step_sent()
 * is DONE. */
enum schedule_result step_send(struct operation *op, const struct step *step,
			       uint32_t s, uint64_t k, uint64_t seq);
enum schedule_result step_sent(struct operation *op, const struct step *step,
			       uint64_t seq);

/* A receive, while its message is looked for. */
struct receive {
	struct operation *op;
	const struct step *step;
	struct peer *peer;
	struct flow *flow;
	uint32_t s;
	uint64_t k, seq;
	struct piece dst;
	uint8_t *room; /* where what has to be read goes; NULL: to dst or... */
	struct bounce_buffer *bounce; /* ...where it waits to be reduced */
	const void *src;              /* the bytes; dst.at: already in place */
	bool mapped;                  /* they are in memory of the sender */
	bool seen;                    /* the rank's device loads from there */
};
/* Has slice k come? DONE: its bytes are at src. POSTED: they will be. */
enum schedule_result step_find(struct receive *r);
/* The same for a peer with peer access, whose message may also be a memory
 * reference. */
enum schedule_result step_find_ref(struct receive *r);

/* Was what has been loaded of receive.mapped bytes what the peer sent? */
dicomm_result_t step_intact(const struct peer *peer);

/* Has what was read for slice k come? SUCCESS, or IN_PROGRESS. In place: it
 * went where it belongs, maybe together with slices that follow. */
dicomm_result_t step_arrived(struct operation *op, const struct step *step,
			     uint32_t s, uint64_t k, uint64_t seq,
			     bool in_place);

/* What the host and devices do in ways of their own. The last three are NULL
 * for the host, which has done a step when it returns. */
struct step_ops {
	enum schedule_result (*local)(struct operation *op,
				      const struct step *step, uint32_t s,
				      uint64_t k);
	enum schedule_result (*send)(struct operation *op,
				     const struct step *step, uint32_t s,
				     uint64_t k, uint64_t seq);
	/* A message that may have come, and is not empty */
	enum schedule_result (*recv)(struct receive *r);
	/* What was POSTED: is it done? */
	enum schedule_result (*sent)(struct operation *op,
				     const struct step *step, uint32_t s,
				     uint64_t k, uint64_t seq);
	enum schedule_result (*received)(struct operation *op,
					 const struct step *step, uint32_t s,
					 uint64_t k, uint64_t seq);
	/* See how far the device's stream has come. */
	dicomm_result_t (*progress)(struct dicomm_comm *comm, bool *moved);
	/* All steps of an operation are done or queued: has the device done
	 * them? */
	enum schedule_result (*end)(struct operation *op);
	/* Wait until the stream has run dry, and give up the messages in
	 * stages: of a communicator that is broken, or ends. */
	void (*quiesce)(struct dicomm_comm *comm);
};

/* A message has been received. */
void step_count(struct operation *op, const struct step *step, size_t bytes,
		bool staged);

/* Read len of them at `at`: IN_PROGRESS, if that is not done yet. */
dicomm_result_t step_read(struct dicomm_comm *comm, struct peer *peer,
			  enum tp_class c, uint64_t seq,
			  const struct tp_ref *ref, uint64_t at, void *into,
			  uint64_t len);
/* What the receiver of a message does with it. */
enum tp_want step_want(const struct prepared *prep);
/* Room for a message that must be read, but not to its final place; NULL in
 * *out if all of it is in use. Free when its op is NULL. */
dicomm_result_t step_bounce(struct dicomm_comm *comm,
			    struct bounce_buffer **out);
/* Give back what slices that will not finish have taken. */
void step_forget(struct operation *op);
/* Break the communicator of an operation that cannot go on. */
enum schedule_result step_fail(struct operation *op, dicomm_result_t status,
			       int peer);

#endif
