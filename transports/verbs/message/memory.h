/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory handles: memory that is registered with every NIC of the rank. */
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
	struct verbs_mr *mr[VERBS_RAILS]; /* NULL: the rail's NIC was removed */
	bool flushed; /* data that read() puts there needs a flush */
};

/* As in struct transport. */
dicomm_result_t verbs_mem_reg(struct tp_device *dev, const void *addr,
			      uint64_t len, bool written, struct tp_mem **out);
dicomm_result_t verbs_mem_reg_device(struct tp_device *dev,
				     const struct tp_region *region,
				     struct tp_mem **out, char *how,
				     size_t len);
void verbs_mem_dereg(struct tp_device *dev, struct tp_mem *mem);

/* Get the keys of registered memory. Returns false if it is not registered.
 * They may be the keys of another handle that covers the memory. They are valid
 * as long as the caller's own handle. */
bool verbs_mem_keys(struct tp_device *dev, const void *addr, uint64_t len,
		    bool written, struct verbs_keys *keys);

#endif
