/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the survivors of a communicator find each other, with or without a hub.
 * Every rank keeps a listening socket for it, at which its control thread
 * answers probes with a keyed proof. So ranks know who is alive and who has
 * begun to shrink; the first of those then serves an id at its socket, and the
 * others join by that id.
 */
#ifndef DICOMM_BOOT_RECOVERY_H
#define DICOMM_BOOT_RECOVERY_H

#include <stdbool.h>
#include <stddef.h>

#include "src/boot/net/auth.h"
#include "src/boot/net/sock.h"

struct recovery;

/* What a probe finds. */
enum recovery_state {
	RECOVERY_GONE,      /* no right answer in time */
	RECOVERY_IDLE,      /* alive, and has not begun to shrink */
	RECOVERY_SHRINKING, /* waits for all that are alive */
	RECOVERY_LATE       /* waits no longer for those that are idle */
};

/* Listen. key: known to the ranks of the communicator and nobody else. */
dicomm_result_t recovery_open(struct recovery **out,
			      const uint8_t key[AUTH_KEY], int rank,
			      char address[SOCK_TEXT]);
/* Answer probes from now on. Until then they wait, and recovery_accept() may
 * take connections. */
dicomm_result_t recovery_serve(struct recovery *r);
void recovery_set_state(struct recovery *r, enum recovery_state state);
/* NULL is allowed. */
void recovery_close(struct recovery *r);

/* Probe rank i at addresses[i], for all of the n ranks whose state is not
 * RECOVERY_GONE, and set the states. At most timeout_ms in all; a rank where
 * nobody listens any more is known to be gone at once. */
dicomm_result_t recovery_probe(const uint8_t key[AUTH_KEY],
			       const char *const *addresses, int n,
			       enum recovery_state *states, int timeout_ms);

/* Begin to connect to an address. Returns the socket, or -1 if nobody listens
 * there. */
int recovery_connect(const char *address);
/* The same for those of the n addresses that are wanted, a few at a time. The
 * others get -1. */
void recovery_connect_all(const char *const *addresses, int n,
			  const bool *wanted, int *fds);
/* The listening socket, readable when a connection waits. */
int recovery_fd(const struct recovery *r);
/* Accept one connection; -1 and errno if none waits. */
int recovery_accept(const struct recovery *r);
/* Accept and close all connections that wait; their ranks try again. */
void recovery_drop_pending(const struct recovery *r);

/* A fresh random text that is hard to guess. */
void recovery_secret(char *text, size_t len);

/* Make the id that all ranks derive from that address and phrase. The rank that
 * gives its own recovery as host serves it. */
dicomm_result_t recovery_new_id(struct recovery *host, const char *address,
				const char *phrase, dicomm_unique_id_t *id);

#endif
