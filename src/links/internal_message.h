/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that ranks exchange for the library's own purposes, between two
 * collectives. They take sequence numbers of the collective channels. Their
 * bytes are in host memory, even for devices. Thread: that of the data path.
 * AGAIN: poll, then retry.
 */
#ifndef DICOMM_LINKS_INTERNAL_MESSAGE_H
#define DICOMM_LINKS_INTERNAL_MESSAGE_H

#include "src/core/comm.h"

struct internal_messages {
	struct dicomm_comm *comm;
	/* The operation that runs next; NULL: the communicator is still being
	 * set up. */
	const struct operation *before;
	uint32_t signature; /* distinguishes these messages from others */
};

/* Bytes of the longest message to that rank */
dicomm_result_t internal_most(const struct internal_messages *t, int rank,
			      size_t *bytes);
/* `body` must stay unchanged until internal_under_way() is 0. */
dicomm_result_t internal_put(const struct internal_messages *t, int rank,
			     const void *body, size_t bytes);
/* Messages to that rank that it has not taken yet, as far as is known */
uint64_t internal_under_way(const struct internal_messages *t, int rank);
/* Take the next message, of *bytes. If `into` is NULL, it may have any length;
 * the length is stored in *bytes. The sender sees the credit at comm_flush().
 */
dicomm_result_t internal_take(const struct internal_messages *t, int rank,
			      void *into, size_t *bytes);

#endif
