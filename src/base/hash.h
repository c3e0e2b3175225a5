/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * FNV-1a, a hash to distinguish data. It does not resist somebody who wants two
 * different inputs to have the same hash.
 */
#ifndef DICOMM_BASE_HASH_H
#define DICOMM_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_START UINT64_C(0xcbf29ce484222325)

/* Continues from h, which is HASH_START at first. Returns the new hash. */
static inline uint64_t hash_bytes(uint64_t h, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len--)
		h = (h ^ *p++) * UINT64_C(0x100000001b3);
	return h;
}

#endif
