/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who has come, who is awaited, and what went wrong first: the part that the
 * meeting and the hub have in common. With the lock of the loop held.
 */
#ifndef DICOMM_BOOT_ROSTER_H
#define DICOMM_BOOT_ROSTER_H

#include "src/boot/gate.h"
#include "src/boot/hello.h"

#define ROSTER_RANKS_MAX 65536

struct roster_seat {
	struct guest *guest; /* NULL: not come yet, or gone */
	bool came, awaited;
	char where[HELLO_WHERE];
};

struct roster {
	int ranks, came; /* ranks 0 until the first has come */
	int refused;     /* who has been told why, too */
	struct roster_seat *seats;
	struct hello first; /* all others must agree with it */
	bool failed;
	dicomm_result_t status;
	char text[WIRE_TEXT];
};

/* Lay the seats that this rank speaks of; the first guest does it if nobody
 * has. False: out of memory. */
bool roster_begin(struct roster *r, const struct hello *h);
void roster_fini(struct roster *r);
/* Admit a guest who said this; else refuse it and fail the roster. */
bool roster_sit(struct roster *r, struct guest *guest, const struct hello *h);
/* The first failure counts: tell all who are here, and who come later. */
void roster_fail(struct roster *r, dicomm_result_t status, int culprit,
		 const char *text);
void roster_broadcast(struct roster *r, const struct wire_out *out,
		      const struct guest *except);
/* "rank 3", "ranks 1, 4-7": those awaited; "" if none. */
void roster_awaited(const struct roster *r, char *text, size_t len);
/* Answer a WIRE_WHO. */
void roster_tell_awaited(const struct roster *r, struct guest *guest,
			 uint64_t gather);
/* Status from the network: one of ours, else ERR_REMOTE. */
dicomm_result_t roster_status(uint32_t status);

#endif
