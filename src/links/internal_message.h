/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that ranks exchange for the library's own purposes, between two
 * collectives. They use sequence numbers of the collective channels. Their
 * bytes are in host memory, also for devices. The thread of the data path calls
 * these functions. If one returns DICOMM_AGAIN, poll, then retry.
 */
#ifndef DICOMM_LINKS_INTERNAL_MESSAGE_H
#define DICOMM_LINKS_INTERNAL_MESSAGE_H

#include "src/core/comm.h"

struct internal_messages {
	struct dicomm_comm *comm;
	/* The operation that runs next; NULL while the communicator is being
	 * set up. */
	const struct operation *before;
	uint32_t signature; /* distinguishes these messages from others */
};

/* Stores the length of the longest message to that rank, in bytes. */
dicomm_result_t internal_most(const struct internal_messages *t, int rank,
			      size_t *bytes);
/* Sends a message. `body` must not change until internal_under_way() returns
 * 0. */
dicomm_result_t internal_put(const struct internal_messages *t, int rank,
			     const void *body, size_t bytes);
/* Returns how many messages to that rank are not known to be received. */
uint64_t internal_under_way(const struct internal_messages *t, int rank);
/* Receives the next message. If `into` is NULL, the message may have any
 * length, which is stored in *bytes. Otherwise it must have *bytes bytes. The
 * sender gets the credit at the next comm_flush(). */
dicomm_result_t internal_take(const struct internal_messages *t, int rank,
			      void *into, size_t *bytes);

#endif
