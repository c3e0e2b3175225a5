/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The guest's side: connect, prove, and talk until all have met. Driven by the
 * thread that opens a communicator; bounded by a deadline and a flag. Quiet:
 * what went wrong is returned as text, because only the caller knows what it
 * was for.
 */
#ifndef DICOMM_BOOT_CLIENT_H
#define DICOMM_BOOT_CLIENT_H

#include "src/boot/auth.h"
#include "src/boot/conn.h"

struct client {
	struct conn conn;
	void *owner; /* set when the control thread serves it */
};

/* How long to try. */
struct client_patience {
	uint64_t until_ns;
	const _Atomic bool *cancelled; /* may be NULL */
	bool until_it_listens;         /* nobody there: try again */
};

/* ERR_TIMEOUT, ERR_ABORTED (cancelled), ERR_REMOTE (nobody listens there any
 * more), ERR_INVALID_USAGE (refused), or ERR_SYSTEM. */
dicomm_result_t client_open(const char *address, const uint8_t key[AUTH_KEY],
			    const struct client_patience *p,
			    struct client **out, char why[WIRE_TEXT]);
/* While waiting until then: when to ask (again) who is missing. Not for long
 * after the beginning; then ever more often, so that the last answer is fresh,
 * and one that a busy machine delays still comes in time. */
uint64_t client_next_ask(uint64_t until_ns);
void client_close(struct client *c);
/* Close after what was sent has arrived. */
void client_linger(struct client *c);
void client_send(struct client *c, const struct wire_out *frame);
/* Wait for a frame on either of two connections (each may be NULL). ERR_REMOTE:
 * *from was lost; ERR_TIMEOUT, ERR_ABORTED as above. */
dicomm_result_t client_next(struct client *a, struct client *b,
			    uint64_t until_ns, const _Atomic bool *cancelled,
			    struct client **from, enum wire_type *type,
			    struct wire_in *in, char why[WIRE_TEXT]);

#endif
