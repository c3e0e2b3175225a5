/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A lease keeps device memory alive until the processes that have imported it
 * release it or die; drivers do not ensure that. A process that imports memory
 * locks a byte of a file that belongs to the owner. The kernel releases the
 * lock when the process ends. The owner frees memory that nobody has locked,
 * while no stream is blocked (blocked_streams.h). That happens at once, after a
 * short wait for processes that end at the same time, or later.
 *
 * Threads: any.
 */
#ifndef DICOMM_MEMORY_LEASE_H
#define DICOMM_MEMORY_LEASE_H

#include "src/accel/accel.h"

struct lease;

/* What another process needs to take the lease. */
struct lease_place {
	uint64_t id; /* random number in the file; 0: no lease */
	int32_t pid, fd;
};

/* Begin a lease. It owns `memory` from now on. If memory is NULL, the user
 * keeps it, and lease_end() only says whether other processes still have it. */
dicomm_result_t lease_begin(const struct accel *accel, int index, void *memory,
			    struct lease **out);
void lease_tell(const struct lease *l, struct lease_place *place);
/* End a lease: wait at most wait_ms until other processes have released it,
 * then free the memory. Accepts NULL. Returns false if some process still has
 * it; then the memory is freed later. */
bool lease_end(struct lease *l, int wait_ms);
/* Free memory that has no lease: now, or when no stream is blocked. */
void lease_free(const struct accel *accel, int index, void *memory);

/* Take the lease of another process. Its memory stays until lease_release().
 * *taken is a number for lease_release(). */
dicomm_result_t lease_take(const struct lease_place *place, int *taken);
void lease_release(int taken);

#endif
