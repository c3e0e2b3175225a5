/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host memory that a process has allocated for neighbours, as a list in a
 * page that they map: so they know of it before they are sent any.
 */
#ifndef DICOMM_ACCEL_HOST_MEMORY_TABLE_H
#define DICOMM_ACCEL_HOST_MEMORY_TABLE_H

#include "src/accel/accel.h"

/* Allocations beyond are not listed. */
#define MEMORY_TABLE_ENTRIES 256

struct memory_table;

/* Of this process: as an allocation that can be imported. Makes it when it is
 * first asked for; it stays. */
dicomm_result_t memory_table_export(struct accel_export *e);
/* Of a neighbour, where it was imported: all that is listed, and how many.
 * False: nothing has changed since *seen. */
bool memory_table_read(const struct memory_table *b,
		       const struct accel_export *where, uint64_t *seen,
		       struct accel_export list[MEMORY_TABLE_ENTRIES],
		       size_t *n);

/* For host.c, under its lock. */
void memory_table_add(uint64_t id, uint64_t bytes, int fd);
void memory_table_remove(uint64_t id);
/* The child of a fork has none of it. */
void memory_table_forget(void);

#endif
