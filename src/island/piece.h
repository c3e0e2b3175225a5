/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the pieces of a message are, of a collective without blocks. It has one
 * share or several, and each rank of an island has a piece of each share. Equal
 * islands have one share; so have two unequal ones. Of more unequal islands,
 * each has a share of its own, which it passes on to the others (swap.h), but
 * the root's.
 */
#ifndef DICOMM_ISLAND_PIECE_H
#define DICOMM_ISLAND_PIECE_H

#include "src/island/job.h"

/* In elements */
struct piece {
	size_t at, length;
};

uint32_t island_piece_shares(const struct job *j);
struct piece island_piece_share(const struct job *j, uint32_t share);
/* The share of an island, if there are several or one that is not the root's */
uint32_t island_piece_share_of(const struct job *j, uint32_t island);
struct piece island_piece_of(const struct job *j, uint32_t share,
			     uint32_t rank);
/* Of a rank of this island, by its number */
struct piece island_piece_near(const struct job *j, uint32_t share,
			       uint32_t member);
struct piece island_piece_common(struct piece a, struct piece b);

/* Bytes of scratch for a piece */
size_t island_piece_room(const struct job *j);
/* Are the sums of this rank's pieces no result of it? */
bool island_piece_is_apart(const struct job *j);
/* Where this rank has what its island adds to its piece of a share: in the
 * result, or first of all in scratch; alone, in what it sends. */
uint8_t *island_piece_sum(const struct job *j, uint32_t share);

#endif
