/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host memory of a neighbour that this rank's device reads.
 *
 * What the neighbour has allocated is listed on its board; here it is mapped
 * and made known to the device. That may wait for streams, so it is done when
 * none is held: before operations that need it. What was missed is mapped for
 * the host when it is sent, and for the device the next time.
 *
 * Threads: host_map_refresh() by callers, host_map_find() by the data path; a
 * lock is between them.
 */
#ifndef DICOMM_MEMORY_HOST_MAP_H
#define DICOMM_MEMORY_HOST_MAP_H

#include "src/accel/accel.h"

struct host_maps;

/* The board is mapped, and that the device reads such memory is tried. */
dicomm_result_t host_map_open(const struct accel_work *work, int index,
			      const struct accel_export *board,
			      struct host_maps **out);
void host_map_close(struct host_maps *maps);
/* Follow the board. What cannot be had is left out. */
void host_map_refresh(struct host_maps *maps);
/* Part of an allocation: where the device sees it, then *seen; else where the
 * host does. */
dicomm_result_t host_map_find(struct host_maps *maps,
			      const struct accel_export *where, uint64_t offset,
			      uint64_t bytes, const void **at, bool *seen);

#endif
