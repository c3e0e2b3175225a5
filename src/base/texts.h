/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short texts, one of each rank, without the room behind them. The same text of
 * ranks that follow each other is kept once.
 */
#ifndef DICOMM_BASE_TEXTS_H
#define DICOMM_BASE_TEXTS_H

#include <stddef.h>
#include <stdint.h>

struct texts {
	uint32_t n;
	uint32_t at[]; /* [n], from the begin of the struct; then the texts */
};

/* Packs n texts of less than `room` bytes, the first one at `first`, each
 * `stride` bytes behind the one before. The caller frees the result; NULL: no
 * memory. */
struct texts *texts_pack(const char *first, size_t stride, size_t room,
			 uint32_t n);

static inline const char *texts_get(const struct texts *t, uint32_t i)
{
	return (const char *)t + t->at[i];
}

#endif
