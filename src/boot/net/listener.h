/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A listening socket that admits only connections whose other end proves that
 * it knows the key. It refuses others (strangers), or drops them when the
 * handshake takes too long. Strangers do not delay ranks, and cause at most one
 * log line per second. Callers of all functions hold the lock of the loop.
 */
#ifndef DICOMM_BOOT_LISTENER_H
#define DICOMM_BOOT_LISTENER_H

#include "src/base/strangers.h"
#include "src/boot/net/conn.h"
#include "src/boot/net/handshake.h"

struct listener;

/* One accepted connection. */
struct peer_conn {
	struct conn conn;
	struct listener *listener; /* NULL once admitted or refused */
	bool proved;
	struct handshake handshake;
	struct peer_conn *next, **link; /* in the list of pending connections */
	struct stranger stranger;       /* until it has proved itself */

	/* For the owner that has admitted it. */
	void *owner;
	int rank;
};

struct listener {
	struct loop_source source;
	uint8_t key[AUTH_KEY];
	struct auth_pair pair; /* of all its connections, from the first on */
	bool has_pair;
	const char *name; /* for logs, such as "id server" */
	bool told_shortage;
	uint64_t told_ns;        /* when a stranger was last logged */
	unsigned strangers;      /* number of strangers since then */
	uint64_t turned_ns;      /* the same of a rank that came too late */
	struct peer_conn *first; /* pending connections, newest first */
	unsigned pending;        /* their number */
	struct strangers unproved;

	/* Ranks are not admitted any more; only who asks is served. */
	bool retired;

	/* How to answer probes; owned. NULL: they are not answered. */
	struct handshake_alive *alive;

	/* Called with the join request, which is the first frame after the
	 * handshake. From then on the callee owns the peer: it sets conn.frame
	 * and conn.lost, or calls listener_refuse(). */
	void (*admit)(void *owner, struct peer_conn *peer,
		      struct frame_reader *in);
	void *owner;

	/* Called with one who does not join, but asks (FRAME_ASKER), and has
	 * proved to know this other key. The callee owns the peer, as above.
	 * NULL: nobody may ask. */
	void (*asked)(struct peer_conn *peer);
	uint8_t asker_key[AUTH_KEY];
};

/* Takes ownership of the listening socket fd, also on failure. The caller sets
 * admit and owner before it releases the lock. */
dicomm_result_t listener_open(int fd, const uint8_t key[AUTH_KEY],
			      const char *name, struct listener **out);
/* From now on only who asks is served. Ranks of a later meeting at this port
 * are turned away without a word, so they try again until somebody else
 * listens. */
void listener_retire(struct listener *l);
/* Stops accepting. l may be NULL. */
void listener_close(struct listener *l);
/* How long a handshake may take. Tests shorten it while no other thread
 * runs. */
extern uint64_t listener_patience_ns;
/* Sends the reason to the other end, then ends the connection. */
void listener_refuse(struct peer_conn *peer, dicomm_result_t status,
		     const char *why);

#endif
