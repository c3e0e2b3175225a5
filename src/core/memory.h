/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that all wires of a communicator reach. */
#ifndef DICOMM_CORE_MEMORY_H
#define DICOMM_CORE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "src/core/comm.h"

/* Make memory reachable by all wires, for as long as it is held. Any thread. */
dicomm_result_t comm_mem_register(struct dicomm_comm *comm, const void *addr,
				  size_t len, bool written,
				  struct mem_handles *handles);
void comm_mem_deregister(struct dicomm_comm *comm, struct mem_handles *handles);
/* Page-aligned memory of the library, held on all wires. */
dicomm_result_t comm_memory_get(struct dicomm_comm *comm, size_t bytes,
				const char *what, uint8_t **out,
				struct mem_handles *handles);
void comm_memory_put(struct dicomm_comm *comm, uint8_t *memory,
		     struct mem_handles *handles);

#endif
