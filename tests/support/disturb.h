/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a man in the middle does to a stream of records: he leaves some out,
 * repeats or swaps them, cuts the stream, and flips bits.
 */
#ifndef DICOMM_TESTS_SUPPORT_DISTURB_H
#define DICOMM_TESTS_SUPPORT_DISTURB_H

#include <stddef.h>
#include <stdint.h>

#define DISTURB_RECORDS 64
#define DISTURB_STEP 4 /* bytes of a script for each thing that he does */

/* Record i of n is stream[at[i] .. at[i + 1]). Does what the script says, and
 * writes the result, at most `room` bytes; returns their number. */
size_t disturb(const uint8_t *stream, const size_t *at, size_t n,
	       const uint8_t *script, size_t len, uint8_t *out, size_t room);
/* How many records of the stream begin what came out of it. */
size_t disturb_right(const uint8_t *stream, const size_t *at, size_t n,
		     const uint8_t *out, size_t len);

#endif
