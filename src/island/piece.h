/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A message is cut into pieces (island.h): where they are, and where an owner
 * has what its island adds to one.
 */
#ifndef DICOMM_ISLAND_PIECE_H
#define DICOMM_ISLAND_PIECE_H

#include "src/island/job.h"

/* First element of a piece */
size_t island_piece_at(const struct job *j, uint32_t piece);
size_t island_piece_length(const struct job *j, uint32_t piece);
bool island_piece_is_mine(const struct job *j, uint32_t piece);
/* Bytes of scratch for a piece */
size_t island_piece_room(const struct job *j);
/* Do two unequal islands swap their sums of an all-reduce (swap.h)? */
bool island_piece_is_swapped(const struct job *j);
/* Where an owner has the sum of a piece: in the result, or in scratch */
uint8_t *island_piece_sum(const struct job *j, uint32_t piece);
/* Does a rank add what it has to what comes, which is in the result? */
bool island_piece_adds_own(const struct job *j);
/* Where an owner gets the sum of a piece of the other island */
uint8_t *island_piece_other(const struct job *j, uint32_t piece);

#endif
