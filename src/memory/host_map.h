/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host memory of a neighbour that this rank's device reads.
 *
 * The neighbour lists what it has allocated on its board, a shared page. This
 * file maps that memory and registers it with the device. A driver may let
 * registration wait for streams, so it happens before operations, while no
 * stream is blocked. Memory that is missing when a message arrives is mapped
 * for the host at once, and for the device the next time.
 *
 * Threads: callers use host_map_refresh(), the data path uses host_map_find();
 * a lock is between them.
 */
#ifndef DICOMM_MEMORY_HOST_MAP_H
#define DICOMM_MEMORY_HOST_MAP_H

#include "src/accel/accel.h"

struct host_maps;

/* Map the neighbour's board, and try whether the device reads such memory. */
dicomm_result_t host_map_open(const struct accel_work *work, int index,
			      const struct accel_export *board,
			      struct host_maps **out);
void host_map_close(struct host_maps *maps);
/* Map what the board lists now. Leave out what cannot be mapped. */
void host_map_refresh(struct host_maps *maps);
/* Find a part of an allocation. *seen is set if *at is an address of the
 * device, otherwise *at is an address of the host. */
dicomm_result_t host_map_find(struct host_maps *maps,
			      const struct accel_export *where, uint64_t offset,
			      uint64_t bytes, const void **at, bool *seen);

#endif
