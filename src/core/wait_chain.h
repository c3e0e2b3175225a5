/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who waits for whom. A rank that waits in vain often waits for one that waits
 * itself: each notes for whom, and who gives up asks along the chain for the
 * rank that holds up all of them.
 */
#ifndef DICOMM_CORE_WAIT_CHAIN_H
#define DICOMM_CORE_WAIT_CHAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dicomm_comm;

/* What this rank waits for. */
struct wait_note {
	int peer; /* -1: no particular rank */
	uint64_t waited_ms;
	uint64_t number;      /* of the call, as in struct wait_for */
	uint64_t what, count; /* of call_log_what() */
};

/* To be called again and again by who waits; the note holds for that long. */
void wait_chain_note(struct dicomm_comm *comm, const struct wait_note *note,
		     uint64_t valid_ms);
/* Returns false if this rank does not wait. Any thread may call it. */
bool wait_chain_read(const struct dicomm_comm *comm, struct wait_note *note);

/* Returns true if this rank has waited for another one, *peer, for at least so
 * long. */
bool wait_chain_answer(const struct dicomm_comm *comm, uint64_t least_ms,
		       uint32_t *peer);

/*
 * For a rank that has waited for `peer` in vain for that long: asks that rank
 * for whom it has waited for half of that, then that one, and so on, for at
 * most two seconds. Returns the last rank of the chain, or `peer` if they wait
 * for each other. Writes how the sentence that ends with "rank <peer>" goes on:
 * " (vm pid 12), which waits for rank 3 (vm pid 14), which does not answer".
 */
int wait_chain_follow(struct dicomm_comm *comm, int peer, uint64_t waited_ms,
		      char *text, size_t len);

#endif
