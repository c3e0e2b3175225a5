/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory registered with all transports of a communicator. */
#ifndef DICOMM_CORE_MEMORY_H
#define DICOMM_CORE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "src/core/comm.h"

/* Registers memory with all open transports. `written` says that peers may
 * write it. On failure nothing is registered. Any thread may call it. */
dicomm_result_t comm_mem_register(struct dicomm_comm *comm, const void *addr,
				  size_t len, bool written,
				  struct mem_handles *handles);
void comm_mem_deregister(struct dicomm_comm *comm, struct mem_handles *handles);
/* Allocates page-aligned memory that is registered with all transports;
 * comm_mem_free() releases it. `what` names it in error messages. */
dicomm_result_t comm_mem_alloc(struct dicomm_comm *comm, size_t bytes,
			       const char *what, uint8_t **out,
			       struct mem_handles *handles);
void comm_mem_free(struct dicomm_comm *comm, uint8_t *memory,
		   struct mem_handles *handles);

#endif
