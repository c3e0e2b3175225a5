/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chains of waiting ranks. A rank whose wait times out has often waited for a
 * rank that waits itself. Each rank publishes for which rank it waits. A rank
 * that times out follows the chain by queries, to the rank that holds up all of
 * them.
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

/* Publishes the wait of this rank. The note expires after valid_ms, so a rank
 * that waits longer calls this again. */
void wait_chain_note(struct dicomm_comm *comm, const struct wait_note *note,
		     uint64_t valid_ms);
/* Returns false if this rank does not wait. Any thread may call it. */
bool wait_chain_read(const struct dicomm_comm *comm, struct wait_note *note);

/* Returns true if this rank has waited for another rank, *peer, for at least
 * least_ms. */
bool wait_chain_answer(const struct dicomm_comm *comm, uint64_t least_ms,
		       uint32_t *peer);

/*
 * For a rank that has waited for `peer` for waited_ms and gives up. Queries the
 * peer for the rank that it has waited for at least half as long, then that
 * rank, and so on, for at most two seconds. Returns the last rank of the chain,
 * or `peer` if they wait for each other. Writes how the sentence that ends with
 * "rank <peer>" goes on: " (vm pid 12), which waits for rank 3 (vm pid 14),
 * which does not answer".
 */
int wait_chain_follow(struct dicomm_comm *comm, int peer, uint64_t waited_ms,
		      char *text, size_t len);

#endif
