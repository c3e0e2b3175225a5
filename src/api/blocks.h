/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The blocks of a buffer whose lengths differ, as the caller gives them: behind
 * one address at displacements, one after the other, or as a list of addresses.
 * A list is converted to displacements from its lowest address. So the folders
 * below this one know one form only, and data is moved directly to and from
 * each block.
 */
#ifndef DICOMM_API_BLOCKS_H
#define DICOMM_API_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

struct blocks {
	const char *name; /* name of the argument: "send"; of a list: "sends" */
	/* Name of the counts: "sendcounts". NULL: there is one block. */
	const char *count_name;
	const char *displs_name; /* NULL: displs need not be there */
	bool is_list;
	const void *at;
	const void *const *list; /* NULL: all are behind `at` */
	const size_t *counts;
	const size_t *displs; /* in elements; NULL: one after the other */
	int n;
	/* Set by blocks_place(): */
	const uint8_t *base;
	size_t first, end; /* the range that all blocks lie in, in bytes */
	const size_t *placed_counts;
	const size_t *offsets; /* offset of each block from `base`, in bytes */
};

/* Checks the blocks, and writes counts and offsets to `room`, which has space
 * for 2 * n numbers. f is the public function, for messages. */
dicomm_result_t blocks_place(const char *f, struct blocks *b, size_t elem,
			     size_t *room);

/* Checks that no block of `received` overlaps any other block. Those that are
 * sent may overlap each other. In an in-place call, block `own` of `sent` lies
 * in the receive buffer, so it is not checked; -1: not in place. */
dicomm_result_t blocks_check_apart(const char *f, const struct blocks *sent,
				   const struct blocks *received, size_t elem,
				   int own);

/* Writes the argument of block i, as messages name it: "send", "recvs[2]". */
void blocks_argument(const struct blocks *b, int i, char *text, size_t len);

#endif
