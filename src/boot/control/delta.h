/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The result of an all-gather as it travels: each part as its differences from
 * the part before it. Ranks tell each other much that is alike, and fields that
 * most leave empty.
 *
 * Format: pairs of two numbers, each in groups of 7 bits, lowest first, with
 * the highest bit set in all bytes but the last: how many bytes are those of
 * the part before (of the first part: 0), and how many bytes that are not
 * follow. Both may extend over several parts.
 */
#ifndef DICOMM_BOOT_DELTA_H
#define DICOMM_BOOT_DELTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct delta_writer {
	uint8_t *data; /* owned by the caller, who frees it */
	size_t len, size;
	uint64_t alike; /* bytes that are alike and not written yet */
	bool bad;       /* there was no memory */
};

/* Adds a part of len bytes; `before` is the part before it, or NULL. */
void delta_add(struct delta_writer *w, const uint8_t *before,
	       const uint8_t *part, size_t len);
/* Writes what is left. Returns false if there was no memory. */
bool delta_end(struct delta_writer *w);

struct delta_reader {
	uint8_t *to;      /* `want` bytes of the caller */
	size_t part;      /* bytes of one part */
	size_t want, got; /* bytes of all parts; complete if they are equal */
	/* private */
	uint64_t number, left;
	unsigned shift;
	bool has_alike;
};

/* Reads the next bytes of the format, which may be cut anywhere. Returns false
 * if they do not belong there. */
bool delta_take(struct delta_reader *r, const uint8_t *data, size_t len);

#endif
