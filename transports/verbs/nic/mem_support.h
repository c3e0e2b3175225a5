/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds out whether the NICs of a rank can register memory of a device,
 * for dicomm-info. */
#ifndef DICOMM_TRANSPORTS_VERBS_NIC_MEM_SUPPORT_H
#define DICOMM_TRANSPORTS_VERBS_NIC_MEM_SUPPORT_H

#include <stdbool.h>

struct tp_mem_support;
struct tp_place;
struct tp_region;

/* As in struct transport. */
bool verbs_mem_support(unsigned n, const struct tp_region *region,
		       const struct tp_place *place,
		       struct tp_mem_support *out);

#endif
