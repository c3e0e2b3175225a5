/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The connecting side: connects to an id server or a hub, proves that it knows
 * the key, and exchanges frames until all ranks have joined. The thread that
 * opens a communicator drives it, within a deadline and until a flag is set.
 * Errors are returned as text and not logged, because only the caller knows
 * what the connection is for.
 */
#ifndef DICOMM_BOOT_CLIENT_H
#define DICOMM_BOOT_CLIENT_H

#include "src/base/auth.h"
#include "src/boot/net/conn.h"

struct client {
	struct conn conn;
	/* The status of a refusal by a listener that has sent no proof.
	 * SUCCESS: there was no refusal. */
	dicomm_result_t claimed;
	void *owner; /* set by the owner, when the control thread serves it */
};

/* How long to try. */
struct client_patience {
	uint64_t until_ns;
	const _Atomic bool *cancelled; /* if set: stop when it becomes true */
	bool until_it_listens;         /* if nobody listens there, try again */
	/* who waits, for a warning every ten seconds; NULL: no warning */
	const char *says;
	/* This one does not join, but asks. It does not try again after a
	 * refusal, since nobody else is expected there. */
	bool asks;
};

/* Connects and does the handshake. On failure writes the reason to `why` and
 * returns DICOMM_ERR_TIMEOUT, DICOMM_ERR_ABORTED (cancelled), DICOMM_ERR_REMOTE
 * (nobody listens there), DICOMM_ERR_NO_MEMORY or DICOMM_ERR_SYSTEM. A refusal
 * arrives before the proof of the other end, so anybody may have sent it. So
 * this tries again until until_ns; then the status and text of the refusal are
 * the result (DICOMM_ERR_INVALID_USAGE: a wrong secret). */
dicomm_result_t client_open(const char *address, const uint8_t key[AUTH_KEY],
			    const struct client_patience *p,
			    struct client **out, char why[FRAME_TEXT]);
/* Returns when a rank that waits until until_ns should next query which ranks
 * are missing: not at the beginning, and more often towards the end. So the
 * last answer is recent, and an answer that a busy machine delays still arrives
 * in time. */
uint64_t client_next_ask(uint64_t until_ns);
void client_close(struct client *c);
/* Closes the connection after everything that was sent has arrived. */
void client_linger(struct client *c);
void client_send(struct client *c, const struct frame_writer *frame);
/* Waits for a frame on one of two connections; each may be NULL. Returns
 * DICOMM_ERR_REMOTE if connection *from was lost, and DICOMM_ERR_TIMEOUT or
 * DICOMM_ERR_ABORTED as above. */
dicomm_result_t client_next(struct client *a, struct client *b,
			    uint64_t until_ns, const _Atomic bool *cancelled,
			    struct client **from, enum frame_type *type,
			    struct frame_reader *in, char why[FRAME_TEXT]);

#endif
