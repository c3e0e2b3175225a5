/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What passes between equal islands: ranks of the same number in their islands
 * do a collective among them, each of those for its piece.
 */
#ifndef DICOMM_ISLAND_OWNER_H
#define DICOMM_ISLAND_OWNER_H

#include "src/island/job.h"

/* Fills in the call. It may have counts, which the caller frees. */
dicomm_result_t island_owner_call(const struct job *j, struct item *item);

#endif
