/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes in bytes: how they are written, and how a sweep goes through them. */
#ifndef DICOMM_PERFTEST_BASE_SIZE_H
#define DICOMM_PERFTEST_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>

/* "8", "32K", "1.5M", "1G": powers of 1024. False if it is none. */
bool size_parse(const char *text, size_t *size);

/* "1.50 MB": powers of 1024, as nccl-tests prints memory. */
void size_print(char *text, size_t len, double bytes);

/* The next size of a sweep, or 0 at its end: times factor if that is above 1,
 * else plus step. From zero bytes a factor goes to one element. */
size_t size_next(size_t size, size_t max, size_t factor, size_t step,
		 size_t element);

#endif
