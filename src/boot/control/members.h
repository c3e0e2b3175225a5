/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of ranks that the id server and the hub both keep: which have come,
 * which are missing, and the first failure. All functions need the lock of the
 * loop.
 */
#ifndef DICOMM_BOOT_MEMBERS_H
#define DICOMM_BOOT_MEMBERS_H

#include "src/boot/control/config.h"
#include "src/boot/control/rank_info.h"
#include "src/boot/net/listener.h"

struct member {
	struct peer_conn *peer; /* NULL: not come yet, or gone */
	bool came, awaited;
	char where[RANK_INFO_WHERE];
};

struct members {
	int ranks, came; /* ranks is 0 until the first has come */
	int refused;     /* ranks that were told why they cannot join */
	struct member *list;
	struct rank_info first; /* all others must agree with it */
	bool failed;
	dicomm_result_t status;
	char text[FRAME_TEXT];
};

/* Make the list as long as this rank says. Does nothing if it is made. False:
 * out of memory. */
bool members_init(struct members *m, const struct rank_info *info);
void members_fini(struct members *m);
/* Enter the rank that sent this join request. If that is impossible, refuse it,
 * fail the list and return false. */
bool members_admit(struct members *m, struct peer_conn *peer,
		   const struct rank_info *info);
/* Tell all ranks that are here of the first failure, and keep it for those that
 * come later. Later failures are ignored. */
void members_fail(struct members *m, dicomm_result_t status, int culprit,
		  const char *text);
void members_broadcast(struct members *m, const struct frame_writer *out,
		       const struct peer_conn *except);
/* Write the missing ranks: "rank 3", "ranks 1, 4-7"; "" if none is. */
void members_missing(const struct members *m, char *text, size_t len);
/* Answer a FRAME_ASK_MISSING. */
void members_send_missing(const struct members *m, struct peer_conn *peer,
			  uint64_t gather);

#endif
