/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host memory that a process has allocated for neighbours, as a list in a
 * page that they map: so they know of it before they are sent any.
 */
#ifndef DICOMM_ACCEL_BOARD_H
#define DICOMM_ACCEL_BOARD_H

#include "src/accel/accel.h"

/* Allocations beyond are not listed. */
#define BOARD_ENTRIES 256

struct board;

/* Of this process: as an allocation that can be imported. Makes it when it is
 * first asked for; it stays. */
dicomm_result_t board_export(struct accel_export *e);
/* Of a neighbour, where it was imported: all that is listed, and how many.
 * False: nothing has changed since *seen. */
bool board_read(const struct board *b, const struct accel_export *where,
		uint64_t *seen, struct accel_export list[BOARD_ENTRIES],
		size_t *n);

/* For host.c, under its lock. */
void board_add(uint64_t id, uint64_t bytes, int fd);
void board_remove(uint64_t id);
/* The child of a fork has none of it. */
void board_forget(void);

#endif
