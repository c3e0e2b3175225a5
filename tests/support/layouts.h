/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random tensors in random layouts for redistribution, and what has to come
 * out, by a definition in plain loops: every element is a function of the
 * tensor, the term and its index.
 */
#ifndef DICOMM_TESTS_SUPPORT_LAYOUTS_H
#define DICOMM_TESTS_SUPPORT_LAYOUTS_H

#include <stdbool.h>

#include "dicomm.h"

#define LAYOUTS_TENSORS 4
#define LAYOUTS_RANKS 16

struct layouts {
	int ranks;
	size_t n;
	dicomm_tensor_t tensors[LAYOUTS_TENSORS];
};

/* The same for the same seed: m ranks hold, n want, of `ranks`. `most`:
 * elements along an axis. */
void layouts_draw(struct layouts *l, unsigned seed, int ranks, int m, int n,
		  unsigned most);
void layouts_free(struct layouts *l);

/* Bytes that a rank needs for its boxes of the source or the target */
size_t layouts_bytes(const dicomm_tensor_t *t, int rank, bool target);
/* Bytes, freed by free(), with the elements that the rank has. */
void *layouts_source(const dicomm_tensor_t *tensors, size_t index, int rank);
/* Bytes, freed by free(), in which every one is a mark. */
void *layouts_target(const dicomm_tensor_t *t, int rank);
/* Are the elements what they should be, and are all marks between them there?
 * If not, text says where. */
bool layouts_right(const dicomm_tensor_t *tensors, size_t index, int rank,
		   const void *target, char *text, size_t len);
/* "int8 [4, 5] from 3 boxes (2 terms) to 4" of each */
void layouts_text(const struct layouts *l, char *text, size_t len);

#endif
