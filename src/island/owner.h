/* SPDX-License-Identifier: BSD-3-Clause */
/* What the owners of each piece do between islands: one call for each piece. */
#ifndef DICOMM_ISLAND_OWNER_H
#define DICOMM_ISLAND_OWNER_H

#include "src/island/job.h"

/* Fills in call number `round`, of struct island's rounds. Some have counts,
 * which the caller frees. */
dicomm_result_t island_owner_call(const struct job *j, uint32_t round,
				  struct item *item);

#endif
