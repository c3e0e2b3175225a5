/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank passes to control_open(): its rank, how it finds the other ranks,
 * and the functions that the control plane calls. */
#ifndef DICOMM_BOOT_CONFIG_H
#define DICOMM_BOOT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

#define CONTROL_RANKS_MAX 65536

/* The control thread calls failed(), died() and query(), which must not block.
 */
struct control_events {
	/* Rank `culprit` died or aborted (status DICOMM_ERR_REMOTE), or
	 * reported a failure that concerns all ranks (its status). `text` is
	 * the reason. May be called several times, once for each cause; the
	 * callee keeps the first one. */
	void (*failed)(void *ctx, dicomm_result_t status, int culprit,
		       const char *text);
	/* Called instead of failed() if the connection of rank `culprit` has
	 * ended and no rank has reported a failure of it. May be NULL. */
	void (*died)(void *ctx, int culprit, const char *text);
	/* Answers a query of rank `peer`: which operation did this rank call as
	 * number `number` of that class? For point to point, `peer` is also the
	 * other end of the operation. Writes one line of text ("allreduce count
	 * 10 float32 sum") and the signature of the operation. Returns false if
	 * this rank has not called it yet, or no longer remembers it. */
	bool (*query)(void *ctx, int peer, uint32_t class, uint64_t number,
		      uint32_t *signature, char *text, size_t len);
	/* The thread that waits in control_allgather() calls this every now and
	 * then, because a rank that has not entered the all-gather yet may need
	 * something from this rank first. May be NULL. */
	void (*waiting)(void *ctx);
	void *ctx;
};

/* Exactly one of id and allgather must be set. */
struct control_config {
	int rank, ranks;
	/* Equal for ranks of one host; see relay.h. */
	uint64_t host;
	/* For messages: the variable of a launcher from which the number of
	 * ranks comes. NULL: it comes from the program. */
	const char *ranks_from;
	const dicomm_unique_id_t *id;
	dicomm_result_t (*allgather)(const void *mine, void *all, size_t len,
				     void *ctx);
	void *allgather_ctx;
	/* If allgather is set: control_open() stores a secret here, which rank
	 * 0 makes and all ranks get. NULL if the caller needs none. */
	dicomm_unique_id_t *secret;
	/* For all ranks to come to control_open(); 0: no bound. Once they have
	 * come, they have as long again and a half, but at most 4 s, more to
	 * tell each other who they are. */
	int timeout_ms;
	/* If the caller sets this flag, this rank stops waiting, also in
	 * control_allgather() and control_query(). The caller keeps it until
	 * control_close(). May be NULL. */
	const _Atomic bool *cancelled;
	struct control_events events;
};

#endif
