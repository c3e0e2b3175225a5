/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of host memory that a process has allocated for neighbours. It lies
 * in one page that neighbours map. So they can register the memory before they
 * are sent any of it.
 */
#ifndef DICOMM_ACCEL_HOST_MEMORY_TABLE_H
#define DICOMM_ACCEL_HOST_MEMORY_TABLE_H

#include "src/accel/accel.h"

/* Further allocations are not listed. */
#define MEMORY_TABLE_ENTRIES 256

struct memory_table;

/* Give the list of this process as an allocation that neighbours can import.
 * The first call makes it, and it is never freed. */
dicomm_result_t memory_table_export(struct accel_export *e);
/* Copy the list of a neighbour. b is where this process has imported it,
 * `where` the export it was imported from. Writes all entries to list and their
 * number to *n, and the list's version to *seen. Returns false if the list is
 * still at version *seen, or if its owner kept changing it. */
bool memory_table_read(const struct memory_table *b,
		       const struct accel_export *where, uint64_t *seen,
		       struct accel_export list[MEMORY_TABLE_ENTRIES],
		       size_t *n);

/* host.c calls these under FORK_HOST_MEMORY, for an allocation that it makes
 * or frees. */
void memory_table_add(uint64_t id, uint64_t bytes, int fd);
void memory_table_remove(uint64_t id);
/* Empty the list in the child of a fork. */
void memory_table_forget(void);

#endif
