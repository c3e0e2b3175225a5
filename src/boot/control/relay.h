/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A tree of hosts for what rank 0 sends to all: the results of all-gathers.
 *
 * Every rank has a connection to rank 0's hub. But the hub sends these results
 * only to the ranks of its own host and to the first ranks of few other hosts.
 * Each of these passes them on, to the other ranks of its host and to the first
 * ranks of few other hosts. So no host sends more than a few copies.
 *
 * This saves traffic, and nothing depends on it. A rank that cannot connect to
 * the one that would pass results on, that loses it, or that hears nothing of
 * it, gets them from the hub. Ranks of one host have no tree.
 *
 * Callers of all functions but relay_connect() hold the lock of the loop.
 */
#ifndef DICOMM_BOOT_RELAY_H
#define DICOMM_BOOT_RELAY_H

#include "src/boot/net/client.h"
#include "src/boot/net/listener.h"

/* A host passes results on to the first ranks of so many others. */
#define RELAY_HOSTS 4

/* The place of a rank in the tree, which the hub chooses. */
struct relay_place {
	int parent;            /* the rank that sends it results; -1: the hub */
	int children;          /* number of ranks to which it sends them */
	uint8_t key[AUTH_KEY]; /* of the connections between ranks */
};

/* Sets parent[] and children[] of all ranks; host[rank] identifies its host.
 * Returns false, and leaves all to the hub, if there is no tree or no memory.
 */
bool relay_plan(const uint64_t *host, int ranks, int *parent, int *children);

struct relay {
	struct listener *listener; /* NULL: no child comes any more */
	struct peer_conn **child;  /* owned; NULL: gone */
	int rank, children, came;
	struct client *parent; /* NULL: the hub */
	/* Of the parent: a frame, its end. The owner sets them. */
	void (*frame)(struct conn *c, enum frame_type type,
		      struct frame_reader *in);
	void (*lost)(struct conn *c, const char *why);
	void *owner;
};

/* Listens for that many children of this rank. Returns false if it cannot. */
bool relay_listen(struct relay *r, const struct relay_place *place, int rank,
		  char address[SOCK_TEXT]);
/* No child comes any more: those that have not come get all from the hub. */
void relay_stop_listening(struct relay *r);
/* Connects to the parent, which listens at `address`. Waits for it until
 * until_ns. Returns NULL if that fails. */
struct client *relay_connect(const struct relay_place *place, int rank,
			     const char *address, uint64_t until_ns,
			     const _Atomic bool *cancelled);
/* Lets the control thread serve the connection to the parent. Returns false if
 * it has ended. */
bool relay_serve(struct relay *r, struct client *parent);
/* Sends the rest of a frame, from the type on, to all children. */
void relay_pass(struct relay *r, enum frame_type type, const uint8_t *data,
		size_t len);
/* Leave the parent, or the children, which notice: the children when all that
 * was passed on has arrived. */
void relay_drop_parent(struct relay *r);
void relay_leave_children(struct relay *r);
void relay_close(struct relay *r);

#endif
