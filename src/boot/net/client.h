/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The connecting side: connect to an id server or a hub, prove knowledge of the
 * key, and exchange frames until all ranks have come. The thread that opens a
 * communicator drives it, bounded by a deadline and a flag. Errors are returned
 * as text and not logged, because only the caller knows what the connection was
 * for.
 */
#ifndef DICOMM_BOOT_CLIENT_H
#define DICOMM_BOOT_CLIENT_H

#include "src/boot/net/auth.h"
#include "src/boot/net/conn.h"

struct client {
	struct conn conn;
	void *owner; /* set when the control thread serves it */
};

/* How long to try. */
struct client_patience {
	uint64_t until_ns;
	const _Atomic bool *cancelled; /* may be NULL */
	bool until_it_listens;         /* if nobody listens there, try again */
};

/* ERR_TIMEOUT, ERR_ABORTED (cancelled), ERR_REMOTE (nobody listens there),
 * ERR_INVALID_USAGE (refused), or ERR_SYSTEM. */
dicomm_result_t client_open(const char *address, const uint8_t key[AUTH_KEY],
			    const struct client_patience *p,
			    struct client **out, char why[FRAME_TEXT]);
/* When a rank that waits until until_ns should ask (again) who is missing: not
 * at the beginning, then ever more often. So the last answer is fresh, and an
 * answer that a busy machine delays still comes in time. */
uint64_t client_next_ask(uint64_t until_ns);
void client_close(struct client *c);
/* Close after everything sent has arrived. */
void client_linger(struct client *c);
void client_send(struct client *c, const struct frame_writer *frame);
/* Wait for a frame on either of two connections (each may be NULL). ERR_REMOTE:
 * *from was lost. ERR_TIMEOUT and ERR_ABORTED as above. */
dicomm_result_t client_next(struct client *a, struct client *b,
			    uint64_t until_ns, const _Atomic bool *cancelled,
			    struct client **from, enum frame_type *type,
			    struct frame_reader *in, char why[FRAME_TEXT]);

#endif
