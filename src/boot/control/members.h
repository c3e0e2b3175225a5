/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of ranks that the id server and the hub keep: which are connected,
 * which are missing, and the first failure. Callers of all functions hold the
 * lock of the loop.
 */
#ifndef DICOMM_BOOT_MEMBERS_H
#define DICOMM_BOOT_MEMBERS_H

#include "src/boot/control/config.h"
#include "src/boot/control/rank_info.h"
#include "src/boot/net/listener.h"

struct member {
	struct peer_conn *peer; /* NULL: not connected yet, or gone */
	bool came, awaited;
	uint64_t node;
	/* In the tree (relay.h): another rank sends it results, or is to. */
	bool has_parent;
	int parent; /* -1: none */
	/* Until then it is busy with `doing`. */
	uint64_t busy_ns;
	char doing[64];
	char where[RANK_INFO_WHERE];
};

struct members {
	int ranks, came; /* ranks is 0 until the first rank connects */
	/* number of ranks that were refused with the reason */
	int refused;
	struct member *list;
	/* of the first rank; all others must agree with it */
	struct rank_info first;
	bool failed;
	dicomm_result_t status;
	char text[FRAME_TEXT];
};

/* Allocates the list for the number of ranks in this rank info, and makes room
 * for the descriptors of their connections. `connected` of them are open
 * already; those of strangers are closed if room is needed. Does nothing if the
 * list exists. Otherwise, if there is no memory, or no room, returns the status
 * and writes the reason to `why`. */
dicomm_result_t members_init(struct members *m, const struct rank_info *info,
			     unsigned connected, char *why, size_t len);
void members_fini(struct members *m);
/* Adds the rank that has sent this join request. `pending` more connections
 * have not sent one yet. If the rank cannot be added, refuses it, marks the
 * list as failed and returns false. */
bool members_admit(struct members *m, struct peer_conn *peer, unsigned pending,
		   const struct rank_info *info);
/* Sends the first failure to all connected ranks, and keeps it for those that
 * connect later. Ignores later failures. */
void members_fail(struct members *m, dicomm_result_t status, int culprit,
		  const char *text);
void members_broadcast(struct members *m, const struct frame_writer *out,
		       const struct peer_conn *except);
/* Adds host and pid of all ranks to a frame, as a result of an all-gather
 * (delta.h) of RANK_INFO_WHERE bytes of each; nothing if they have no room. */
void members_put_names(const struct members *m, struct frame_writer *out);
/* Answers a FRAME_ASK_MISSING; m is NULL if nobody is missing. */
void members_send_missing(const struct members *m, struct peer_conn *peer,
			  uint64_t gather);

#endif
