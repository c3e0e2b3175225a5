/* SPDX-License-Identifier: BSD-3-Clause */
/* How a NIC is given memory of a device. */
#ifndef DICOMM_TRANSPORTS_VERBS_LADDER_H
#define DICOMM_TRANSPORTS_VERBS_LADDER_H

#include <stdbool.h>
#include <stddef.h>

struct ibv_mr;
struct tp_place;
struct tp_region;
struct tp_taker;
struct verbs_nic;

/* Does memory of that device need a flush behind what a NIC has written? */
bool verbs_ladder_flushes(const struct tp_region *region);
/* In the best way that works; NULL: in none. `how` becomes which, or why. */
struct ibv_mr *verbs_ladder_climb(const struct verbs_nic *nic,
				  const struct tp_region *region,
				  unsigned access, char *how, size_t len);
/* As in struct transport. */
bool verbs_takes(unsigned n, const struct tp_region *region,
		 const struct tp_place *place, struct tp_taker *out);

#endif
