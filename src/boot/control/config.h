/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank gives to control_open(): who it is, how it finds the others, and
 * the functions that the control plane calls. */
#ifndef DICOMM_BOOT_CONFIG_H
#define DICOMM_BOOT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

#define CONTROL_RANKS_MAX 65536

/* The control thread calls failed() and query(). They must not block. */
struct control_events {
	/* A rank died (ERR_REMOTE), aborted (ERR_REMOTE), or reported a failure
	 * that concerns all ranks (its status). culprit is that rank, text says
	 * why. Called at most once for each cause; the caller keeps the first.
	 */
	void (*failed)(void *ctx, dicomm_result_t status, int culprit,
		       const char *text);
	/* Rank `peer` asks what this rank called as operation `number` of that
	 * class. For point to point, `peer` is also the other end. Write one
	 * line of text ("allreduce count 10 float32 sum") and its signature.
	 * Return false if this rank has not called it yet, or has forgotten. */
	bool (*query)(void *ctx, int peer, uint32_t class, uint64_t number,
		      uint32_t *signature, char *text, size_t len);
	/* The thread that waits in control_allgather() calls this now and then:
	 * a rank that is still on its way there may need something from this
	 * rank first. May be NULL. */
	void (*waiting)(void *ctx);
	void *ctx;
};

/* Exactly one of id and allgather is set. */
struct control_config {
	int rank, ranks;
	const dicomm_unique_id_t *id;
	dicomm_result_t (*allgather)(const void *mine, void *all, size_t len,
				     void *ctx);
	void *allgather_ctx;
	/* With allgather: control_open() fills it with a secret that rank 0
	 * makes. NULL if the caller needs none. */
	dicomm_unique_id_t *secret;
	int timeout_ms; /* for the whole of control_open; 0: no bound */
	/* Read whenever this rank waits, also in control_allgather() and
	 * control_query(). Lives until control_close(). May be NULL. */
	const _Atomic bool *cancelled;
	struct control_events events;
};

#endif
