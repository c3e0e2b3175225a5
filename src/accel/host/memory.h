/* SPDX-License-Identifier: BSD-3-Clause */
/* Host memory that neighbour processes can map. host.c allocates it;
 * allocation.c finds it. */
#ifndef DICOMM_ACCEL_HOST_MEMORY_H
#define DICOMM_ACCEL_HOST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/accel/accel.h"

/* Returns true if [addr, addr + len) lies in one allocation; then *where is its
 * export and *offset the place of addr in it. Any thread. Takes no lock and
 * makes no system call, because the engine calls it for each large message. */
bool host_memory_find(const void *addr, size_t len, struct accel_export *where,
		      size_t *offset);
/* Map a neighbour's allocation, never one of this process. */
dicomm_result_t host_memory_import(const struct accel_export *e, void **base);
void host_memory_unimport(const struct accel_export *e, void *base);
/* This process lists the allocations it has freed, for its neighbours. Returns
 * how many it has freed so far, and in *id the id of number i (0 if number i
 * has left the list). */
uint64_t host_memory_freed(uint64_t i, uint64_t *id);

#endif
