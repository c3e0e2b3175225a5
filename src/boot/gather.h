/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hub's side of control_allgather(): take the parts of all ranks, send
 * everybody the whole. One at a time; with the lock of the loop held.
 */
#ifndef DICOMM_BOOT_GATHER_H
#define DICOMM_BOOT_GATHER_H

#include "src/boot/roster.h"

#define GATHER_CHUNK (WIRE_MAX - 16) /* bytes of data in one frame */

/* What one rank has sent. */
struct gather_part {
	uint8_t *data;
	size_t len, got, size;
	bool begun, complete;
	bool lost; /* no memory for it: the all-gather fails at its end */
};

struct gather {
	struct roster *roster; /* whom to send to; says who is awaited */
	uint64_t number;       /* the first is 1 */
	int complete;
	struct gather_part *parts; /* of each rank */
};

bool gather_init(struct gather *g, struct roster *roster);
void gather_fini(struct gather *g);
/* A WIRE_GATHER of that rank; false if it makes no sense. */
bool gather_take(struct gather *g, int rank, struct wire_in *in);

#endif
