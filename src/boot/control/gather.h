/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hub's side of control_allgather(): receives the parts of all ranks, then
 * sends the result to all of them. There is one all-gather at a time. Callers
 * of all functions hold the lock of the loop.
 */
#ifndef DICOMM_BOOT_GATHER_H
#define DICOMM_BOOT_GATHER_H

#include "src/boot/control/members.h"

#define GATHER_CHUNK (FRAME_MAX - 16)    /* bytes of data in one frame */
#define GATHER_MAX ((uint64_t)256 << 20) /* most bytes of one rank */
/* most bytes of all ranks together */
#define GATHER_TOTAL ((uint64_t)1 << 30)

/* What one rank has sent so far. */
struct gather_part {
	uint8_t *data;
	size_t len, got, size;
	bool begun, complete;
	bool lost; /* there was no memory for it, so the all-gather will fail */
};

struct gather {
	/* the ranks; the result is sent to them */
	struct members *members;
	uint64_t number; /* counts all-gathers from 1 */
	int complete;
	struct gather_part *parts; /* [rank]; owned */
	struct conn_shared *last;  /* the last result; owned */
};

bool gather_init(struct gather *g, struct members *members);
void gather_fini(struct gather *g);
/* Handles a FRAME_GATHER from that rank. Returns false if the frame is
 * invalid. */
bool gather_take(struct gather *g, int rank, struct frame_reader *in);

/* Sends the result to that rank again, if it is the last one. */
void gather_resend(const struct gather *g, int rank, uint64_t number);

#endif
