/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes in bytes: how they are written, and the steps of a sweep. */
#ifndef DICOMM_PERFTEST_BASE_SIZE_H
#define DICOMM_PERFTEST_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>

/* Reads "8", "32K", "1.5M" or "1G", in powers of 1024. Returns false if the
 * text is not a size. */
bool size_parse(const char *text, size_t *size);

/* Writes "1.50 MB", in powers of 1024, as nccl-tests prints memory. */
void size_print(char *text, size_t len, double bytes);

/* Returns the next size of a sweep, or 0 at its end. Multiplies by factor if
 * that is above 1, otherwise adds step. After 0 bytes, a factor leads to one
 * element. */
size_t size_next(size_t size, size_t max, size_t factor, size_t step,
		 size_t element);

#endif
