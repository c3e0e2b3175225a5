/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A listening socket that admits only connections whose other end proves that
 * it knows the key. Others (strangers) are refused, or dropped when the
 * handshake takes too long. They hold up nobody, and cost at most a line a
 * second in the log. All functions need the lock of the loop.
 */
#ifndef DICOMM_BOOT_LISTENER_H
#define DICOMM_BOOT_LISTENER_H

#include "src/boot/net/conn.h"
#include "src/boot/net/handshake.h"

struct listener;

/* One accepted connection. */
struct peer_conn {
	struct conn conn;
	struct listener *listener; /* NULL once admitted or refused */
	bool proved;
	struct handshake handshake;
	struct peer_conn *next, **link; /* in the list of pending ones */

	/* For the owner that admitted it. */
	void *owner;
	int rank;
};

struct listener {
	struct loop_source source;
	uint8_t key[AUTH_KEY];
	struct auth_pair pair; /* of all its connections */
	const char *name;      /* in logs: "id server" */
	int pending;
	bool told_shortage;
	uint64_t told_ns;                /* when a stranger was last logged */
	unsigned strangers;              /* since then */
	struct peer_conn *first, **last; /* not admitted yet, oldest first */

	/* How it answers probes; owned; NULL: not at all. */
	struct handshake_alive *alive;

	/* Called with the join request, the first frame after the handshake.
	 * The callee owns peer from then on: it sets conn.frame and conn.lost,
	 * or calls listener_refuse(). */
	void (*admit)(void *owner, struct peer_conn *peer,
		      struct frame_reader *in);
	void *owner;
};

/* Take the listening socket fd, also on failure. The caller fills in admit and
 * owner at once. */
dicomm_result_t listener_open(int fd, const uint8_t key[AUTH_KEY],
			      const char *name, struct listener **out);
/* Accept nobody any more. NULL is allowed. */
void listener_close(struct listener *l);
/* How long a handshake may take. Tests shorten it; set while no other thread
 * runs. */
extern uint64_t listener_patience_ns;
/* Tell the other end why, then end the connection. */
void listener_refuse(struct peer_conn *peer, dicomm_result_t status,
		     const char *why);

#endif
