/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the ranks of a communicator meet, and what they tell each other apart
 * from data: who has died, who called what.
 *
 * Every rank keeps one authenticated TCP connection to rank 0 (the hub), for
 * the life of the communicator. One control thread per process serves the
 * connections of all its communicators; it only sets flags and answers
 * queries, and never touches the data path.
 */
#ifndef DICOMM_BOOT_CONTROL_H
#define DICOMM_BOOT_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

struct control;

/* Called from the control thread, but for one; must not block. */
struct control_events {
	/* A rank died (ERR_REMOTE), aborted (ERR_REMOTE), or reported a failure
	 * that concerns all (its status). culprit is that rank, text says why.
	 * At most once for each cause; the caller keeps the first. */
	void (*failed)(void *ctx, dicomm_result_t status, int culprit,
		       const char *text);
	/* Another rank asks what this one called as operation `number` of that
	 * class (`peer` is the asking rank, for point to point). Write one line
	 * of text ("allreduce count 10 float32 sum"), and its signature; false
	 * if this rank has not called it yet (or no longer knows). */
	bool (*query)(void *ctx, int peer, uint32_t class, uint64_t number,
		      uint32_t *signature, char *text, size_t len);
	/* This one from the thread that waits in control_allgather(), now and
	 * then: a rank that has yet to come there may need something of this
	 * one first. May be NULL. */
	void (*waiting)(void *ctx);
	void *ctx;
};

/* How to meet. Exactly one of id and allgather is set. */
struct control_config {
	int rank, ranks;
	const dicomm_unique_id_t *id;
	dicomm_result_t (*allgather)(const void *mine, void *all, size_t len,
				     void *ctx);
	void *allgather_ctx;
	/* With allgather: to be filled with a secret of rank 0's making. NULL:
	 * none is needed. */
	dicomm_unique_id_t *secret;
	int timeout_ms; /* for the whole of control_open; 0: no bound */
	/* Looked at whenever this rank waits, also in control_allgather() and
	 * control_query(); lives until control_close(). May be NULL. */
	const _Atomic bool *cancelled;
	struct control_events events;
};

/*
 * Make an id: listen on a port, with a fresh secret. A background thread of
 * this process serves the meeting until all ranks have come or the bootstrap
 * time is over. The id is text: "dicomm1:ADDRESS:PORT:SECRET".
 */
dicomm_result_t control_new_id(dicomm_unique_id_t *id);
/* Nobody will come: end the meeting of an id of this process at once. */
void control_forget_id(const dicomm_unique_id_t *id);
/* The id that all ranks derive from DICOMM_COMM_ID and DICOMM_COMM_KEY style
 * settings; listen there if this is rank 0. */
dicomm_result_t control_fixed_id(const char *host_port, const char *key,
				 int rank, dicomm_unique_id_t *id);

/*
 * Meet all ranks. Bounded by timeout_ms. ERR_TIMEOUT names the ranks that did
 * not come; a stranger, a wrong secret, an unlike version, byte order or page
 * size, or a rank number taken twice is refused and named.
 */
dicomm_result_t control_open(const struct control_config *config,
			     struct control **out);

/* Gather len bytes of each rank, in rank order; all ranks call it in the same
 * order, with the same len, else all get ERR_INVALID_USAGE. Bounded by
 * timeout_ms (0: not); ERR_REMOTE at once if a rank dies or has left. After a
 * time-out, a death or a failure that was reported, every further one fails
 * too: the ranks no longer know which one they are at. */
dicomm_result_t control_allgather(struct control *c, const void *mine,
				  void *all, size_t len, int timeout_ms);

/* Ask a rank what it called (see control_events.query), wait at most
 * timeout_ms. ERR_TIMEOUT: no answer; *known false: not called yet. Must not
 * be called from the control thread. */
dicomm_result_t control_query(struct control *c, int rank, uint32_t class,
			      uint64_t number, int timeout_ms, bool *known,
			      uint32_t *signature, char *text, size_t len);

/* Tell all other ranks of a failure; local, never blocks for long. Ends this
 * rank's own control_allgather() too. */
void control_report(struct control *c, dicomm_result_t status, int culprit,
		    const char *text);

/* Is the rank gone (said goodbye, or died)? */
bool control_gone(struct control *c, int rank);
/* Host and pid of a rank, for messages: "host3 pid 4711". */
const char *control_where(struct control *c, int rank);

/* All calls fail with ERR_INVALID_USAGE in a child of fork(), where this one
 * does nothing: the connections belong to the parent.
 *
 * Say goodbye, so that leaving is not taken for dying, and free. After it no
 * event is delivered. If this is the hub, the connections of the others end
 * too; they treat a hub that said goodbye as gone, not dead. */
void control_close(struct control *c);

#endif
