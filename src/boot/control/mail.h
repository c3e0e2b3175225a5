/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Letters that a rank has received from others and not read yet. A letter has a
 * key, by which its sender and its reader know what it is about. A later letter
 * of the same sender and key replaces an earlier one. Callers of all functions
 * hold the lock of the loop.
 */
#ifndef DICOMM_BOOT_MAIL_H
#define DICOMM_BOOT_MAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct letter {
	struct letter *next;
	int from;
	uint64_t key;
	uint64_t arrived_ns;
	size_t len;
	uint8_t data[];
};

/* Zeroed at first. */
struct mail {
	struct letter *first;
};

/* Keeps a copy of the letter. An empty one only removes the earlier one.
 * Returns false if there is no memory. */
bool mail_put(struct mail *m, int from, uint64_t key, const uint8_t *data,
	      size_t len);
/* Returns the letter of that sender, or of any one if `from` is -1, which the
 * caller frees with free(), or NULL. */
struct letter *mail_take(struct mail *m, int from, uint64_t key);
void mail_fini(struct mail *m);

#endif
