/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of a device that neighbours reach stays until they have let go of it,
 * or have died: drivers do not see to that. Who reaches it holds a lock on a
 * file of its owner's, which the kernel takes back with the process. The owner
 * frees what nobody has locked, while no stream is held (held.h): at once,
 * after a short wait for processes that end with it, or later.
 *
 * Threads: any.
 */
#ifndef DICOMM_MEMORY_LEASE_H
#define DICOMM_MEMORY_LEASE_H

#include "src/accel/accel.h"

struct lease;

/* What neighbours need to know */
struct lease_place {
	uint64_t id; /* of the file; 0: there is none */
	int32_t pid, fd;
};

/* Memory of that device, which from now on belongs to the lease; NULL: it stays
 * its user's, whom lease_end() tells whether others still have it. */
dicomm_result_t lease_begin(const struct accel *accel, int index, void *memory,
			    struct lease **out);
void lease_tell(const struct lease *l, struct lease_place *place);
/* Wait so long at most for other processes to let go of it, and free it; NULL:
 * there is none. False: some still have it, and it is freed later. */
bool lease_end(struct lease *l, int wait_ms);
/* Free memory that nobody has a lease on, now or later. */
void lease_free(const struct accel *accel, int index, void *memory);

/* For neighbours: until lease_release(), the memory stays. */
dicomm_result_t lease_take(const struct lease_place *place, int *taken);
void lease_release(int taken);

#endif
