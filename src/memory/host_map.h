/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Maps host memory of a neighbour for this rank's device, which reads it.
 *
 * The neighbour lists what it has allocated on its board, a shared page. This
 * file maps that memory and registers it with the device. A driver may let
 * registration wait for streams, so it happens before operations, while no
 * stream is blocked. Memory that is not mapped yet when a message arrives is
 * mapped for the host at once, and for the device the next time.
 *
 * Threads: callers use host_map_refresh(), the data path uses host_map_find();
 * a lock is between them.
 */
#ifndef DICOMM_MEMORY_HOST_MAP_H
#define DICOMM_MEMORY_HOST_MAP_H

#include "src/accel/accel.h"

struct host_maps;

/* Map the neighbour's board, and find out whether the device can read such
 * memory; fails if it cannot. */
dicomm_result_t host_map_open(const struct accel_work *work, int index,
			      const struct accel_export *board,
			      struct host_maps **out);
void host_map_close(struct host_maps *maps);
/* Map the memory that the board lists, and unmap what it no longer lists. Skips
 * memory that cannot be mapped. Does nothing while a stream is blocked. */
void host_map_refresh(struct host_maps *maps);
/* Find a part of an allocation. *at is an address of the device if *seen is
 * set, otherwise an address of the host. */
dicomm_result_t host_map_find(struct host_maps *maps,
			      const struct accel_export *where, uint64_t offset,
			      uint64_t bytes, const void **at, bool *seen);

#endif
