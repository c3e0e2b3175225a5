/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The description of a redistribution as a row of numbers, in which all ranks
 * have to agree. A list in it begins with its length; so the first number in
 * which two rows differ stands for the same field in both.
 */
#ifndef DICOMM_REDISTRIBUTE_DESCRIBE_H
#define DICOMM_REDISTRIBUTE_DESCRIBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

struct description {
	const dicomm_tensor_t *tensors; /* NULL: only their number */
	size_t n;
	const dicomm_redistribute_config_t *config;
};

/* Returns how many numbers there are, and the hash of numbers first to end -
 * 1. */
uint64_t describe(const struct description *d, uint64_t first, uint64_t end,
		  uint64_t *hash);
/* Writes the value of number i, and the name of its field, such as "tensor 0
 * (w): target box 3: hi of axis 1". Returns true if it is a weight; then *value
 * has its bits. */
bool describe_field(const struct description *d, uint64_t i, uint64_t *value,
		    char *text, size_t len);

#endif
