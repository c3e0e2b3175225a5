/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that its user holds: all NICs of the rank may have it. */
#ifndef DICOMM_TRANSPORTS_VERBS_MESSAGE_MEMORY_H
#define DICOMM_TRANSPORTS_VERBS_MESSAGE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"
#include "transports/verbs/nic/nic.h"

struct tp_device;
struct tp_region;
struct verbs_keys;
struct verbs_mr;

struct tp_mem {
	struct tp_mem *next;
	struct verbs_mr *mr[VERBS_RAILS]; /* NULL: the rail had gone */
	bool flushed;                     /* what read() has put there */
};

/* As in struct transport. */
dicomm_result_t verbs_mem_reg(struct tp_device *dev, const void *addr,
			      uint64_t len, bool written, struct tp_mem **out);
dicomm_result_t verbs_mem_reg_device(struct tp_device *dev,
				     const struct tp_region *region,
				     struct tp_mem **out, char *how,
				     size_t len);
void verbs_mem_dereg(struct tp_device *dev, struct tp_mem *mem);

/* The keys of that memory; false if it is not held. They may be those of
 * another hold, which is dropped at any time; who asks has one of its own. */
bool verbs_mem_keys(struct tp_device *dev, const void *addr, uint64_t len,
		    bool written, struct verbs_keys *keys);

#endif
