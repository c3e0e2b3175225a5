/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hub's side of control_allgather(): receive the parts of all ranks, then
 * send everybody the whole. One all-gather at a time. All functions need the
 * lock of the loop.
 */
#ifndef DICOMM_BOOT_GATHER_H
#define DICOMM_BOOT_GATHER_H

#include "src/boot/control/members.h"

#define GATHER_CHUNK (FRAME_MAX - 16)    /* bytes of data in one frame */
#define GATHER_MAX ((uint64_t)256 << 20) /* bytes of one rank */
#define GATHER_TOTAL ((uint64_t)1 << 30) /* bytes of all ranks */

/* What one rank has sent. */
struct gather_part {
	uint8_t *data;
	size_t len, got, size;
	bool begun, complete;
	bool lost; /* no memory for it: the all-gather fails at its end */
};

struct gather {
	struct members *members; /* whom to send to; says who is missing */
	uint64_t number;         /* the first is 1 */
	int complete;
	struct gather_part *parts; /* of each rank */
};

bool gather_init(struct gather *g, struct members *members);
void gather_fini(struct gather *g);
/* A FRAME_GATHER of that rank; false if it makes no sense. */
bool gather_take(struct gather *g, int rank, struct frame_reader *in);

#endif
