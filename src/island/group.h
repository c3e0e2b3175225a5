/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of a group of which some go by islands. */
#ifndef DICOMM_ISLAND_GROUP_H
#define DICOMM_ISLAND_GROUP_H

#include "src/stream/submit.h"

/* Runs all of them; of those that go by islands, `run_group` is this. Takes
 * over their counts, also on failure. */
dicomm_result_t island_group_run(struct item *items, size_t n);

#endif
