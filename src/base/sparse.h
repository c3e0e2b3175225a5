/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arrays with an entry for each rank, of which most ranks use few. Entries are
 * zero at first, and a long array takes memory only where it was written:
 * malloc() may hand out pages that were used before.
 */
#ifndef DICOMM_BASE_SPARSE_H
#define DICOMM_BASE_SPARSE_H

#include <stddef.h>

/* Returns NULL if there is no memory. */
void *sparse_alloc(size_t n, size_t bytes);
/* With the same n and bytes; `at` may be NULL. */
void sparse_free(void *at, size_t n, size_t bytes);

#endif
