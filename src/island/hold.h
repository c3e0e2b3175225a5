/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The communicators of a group that a thread runs. They are not freed before
 * its end, also while none of their calls goes on. So whoever aborts one of
 * them would wait for the others.
 */
#ifndef DICOMM_ISLAND_HOLD_H
#define DICOMM_ISLAND_HOLD_H

#include "src/core/comm.h"
#include "src/stream/item.h"

/* The caller fills in the items and keeps the struct. */
struct island_hold {
	const struct item *items;
	size_t n;
	struct island_hold *outer; /* log_fn may have called for a group */
	struct island_hold *next;  /* in the list of all threads' */
};

void island_hold_begin(struct island_hold *hold);
void island_hold_end(struct island_hold *hold);
/* Does this thread hold it? Takes no lock. */
bool island_hold_has(const struct dicomm_comm *comm);
/* This rank has aborted it: waits a moment for the end of the groups that hold
 * it, then aborts the other communicators of those. */
void island_hold_abort(struct dicomm_comm *comm);

#endif
