/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that ranks exchange for the library's own purposes between two
 * collectives, in the numbers of their lanes. They are in host memory, whatever
 * the devices. Thread: that of the data path. AGAIN: poll, then retry.
 */
#ifndef DICOMM_LINKS_INTERNAL_MESSAGE_H
#define DICOMM_LINKS_INTERNAL_MESSAGE_H

#include "src/core/comm.h"

struct internal_messages {
	struct dicomm_comm *comm;
	/* What is to run next; NULL: the communicator is only forming. */
	const struct operation *before;
	uint32_t signature; /* tells these messages from others */
};

/* Longest message to that rank. */
dicomm_result_t internal_most(const struct internal_messages *t, int rank,
			      size_t *bytes);
/* The body must stay until internal_under_way() is 0. */
dicomm_result_t internal_put(const struct internal_messages *t, int rank,
			     const void *body, size_t bytes);
/* Messages put to that rank that it has not taken, as far as is known. */
uint64_t internal_under_way(const struct internal_messages *t, int rank);
/* Take the next message, of *bytes; with `into` NULL, of any length, which is
 * stored there. Its sender hears of it at comm_flush(). */
dicomm_result_t internal_take(const struct internal_messages *t, int rank,
			      void *into, size_t *bytes);

#endif
