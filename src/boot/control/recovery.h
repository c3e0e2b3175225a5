/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the survivors of a communicator find each other, with or without a hub.
 * Every rank has a listening socket for this purpose. Its control thread
 * answers probes there with a keyed proof. So ranks learn which ranks are alive
 * and which have begun to shrink. The first of those then serves an id at its
 * socket, and the others join by that id.
 */
#ifndef DICOMM_BOOT_RECOVERY_H
#define DICOMM_BOOT_RECOVERY_H

#include <stdbool.h>
#include <stddef.h>

#include "src/base/auth.h"
#include "src/boot/net/sock.h"

struct recovery;

/* The state of a rank, as a probe finds it. */
enum recovery_state {
	RECOVERY_GONE,      /* no valid answer in time */
	RECOVERY_IDLE,      /* alive; has not begun to shrink */
	RECOVERY_SHRINKING, /* waits for all ranks that are alive */
	RECOVERY_LATE       /* no longer waits for ranks that are idle */
};

/* Starts to listen; stores the address. Only the ranks of the communicator know
 * the key. */
dicomm_result_t recovery_open(struct recovery **out,
			      const uint8_t key[AUTH_KEY], int rank,
			      char address[SOCK_TEXT]);
/* Starts to answer probes. Until then, probes wait and recovery_accept() may
 * take connections. */
dicomm_result_t recovery_serve(struct recovery *r);
void recovery_set_state(struct recovery *r, enum recovery_state state);
/* r may be NULL. */
void recovery_close(struct recovery *r);

/* Probes rank i at addresses[i], for each of the n ranks but `own` (-1: none is
 * left out) whose state is not RECOVERY_GONE, and sets the states. Ends when
 * nobody has answered for quiet_ms, or after most_ms: where hundreds of ranks
 * share a core, answers are slow to come, but they do come. A rank is found to
 * be gone at once if nobody listens at its address. */
dicomm_result_t recovery_probe(const uint8_t key[AUTH_KEY],
			       const char *const *addresses, int n, int own,
			       enum recovery_state *states, int quiet_ms,
			       int most_ms);

/* Starts to connect to an address. Returns the socket, or -1 if nobody listens
 * there. */
int recovery_connect(const char *address);
/* Starts to connect to those of the n addresses that are wanted, a few at a
 * time. fds[i] becomes the socket, or -1. */
void recovery_connect_all(const char *const *addresses, int n,
			  const bool *wanted, int *fds);
/* Returns the listening socket. It is readable when a connection waits. */
int recovery_fd(const struct recovery *r);
/* Accepts one connection. Returns -1 and sets errno if none waits. */
int recovery_accept(const struct recovery *r);
/* Closes all connections that wait to be accepted; their ranks try again. */
void recovery_drop_pending(const struct recovery *r);

/* Writes a random text that is hard to guess. */
void recovery_secret(char *text, size_t len);

/* Makes the id that all ranks derive from that address and phrase. One rank
 * passes its own recovery as `host`, and so serves the id; the others pass
 * NULL. */
dicomm_result_t recovery_new_id(struct recovery *host, const char *address,
				const char *phrase, dicomm_unique_id_t *id);

#endif
