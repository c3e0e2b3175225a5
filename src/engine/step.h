/* SPDX-License-Identifier: BSD-3-Clause */
/* One step of an operation on one slice: a message, a copy or a reduction. */
#ifndef DICOMM_ENGINE_STEP_H
#define DICOMM_ENGINE_STEP_H

#include "src/core/operation.h"
#include "src/engine/prepared.h"
#include "src/message/slice.h"

/* Callbacks of the schedule; their context is the operation. */
extern const struct schedule_io step_io;

/* A span on one slice, as an address for the rank's device. */
struct piece {
	uint8_t *at;
	size_t n, bytes;
};
struct piece step_locate(const struct operation *op, const struct span *s,
			 uint64_t k);

/* One step of an operation on one slice. */
struct part {
	struct operation *op;
	const struct step *step;
	uint32_t s; /* the number of the step in its plan */
	uint64_t k; /* the slice */
	/* Where a send finds its bytes, or a receive puts them */
	struct piece piece;
	struct message_slice m; /* of a send or receive */
};

/* Sends bytes that the host can access. They must not change until
 * step_sent() returns SCHEDULE_DONE. */
enum schedule_result step_send(struct part *p);
/* Puts p->m, which the caller has filled in. */
enum schedule_result step_put(struct part *p);
enum schedule_result step_sent(struct part *p);
/* Receives to memory that the host, or a transport, writes; step_received()
 * returns SCHEDULE_DONE once it has ended. */
enum schedule_result step_recv(struct part *p);
enum schedule_result step_received(struct part *p);
/* Looks for the message of a receive. Returns SCHEDULE_DONE if its bytes are at
 * p->m.src, SCHEDULE_POSTED if they are being read, and SCHEDULE_AGAIN if it
 * has not arrived. */
enum schedule_result step_find(struct part *p);
/* Returns SCHEDULE_DONE if the bytes that were read are at p->m.src, otherwise
 * SCHEDULE_AGAIN. */
enum schedule_result step_arrived(struct part *p);

/* What a device does differently from the host. The host has NULL for the last
 * three functions, because its steps are done when they return. */
struct step_ops {
	enum schedule_result (*local)(const struct part *p);
	/* Messages that are not empty: puts one, or handles one that may have
	 * arrived. */
	enum schedule_result (*send)(struct part *p);
	enum schedule_result (*recv)(struct part *p);
	/* sent() and received() tell whether a posted step is done. */
	enum schedule_result (*sent)(struct part *p);
	enum schedule_result (*received)(struct part *p);
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
void step_count(const struct part *p, bool staged);

/* Breaks the communicator of an operation that cannot go on. */
enum schedule_result step_fail(struct operation *op, dicomm_result_t status,
			       int peer);

#endif
