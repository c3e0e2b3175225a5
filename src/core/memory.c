/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that all transports of a communicator can reach. */
#include "src/core/memory.h"

#include <stdlib.h>

#include "src/accel/accel.h"
#include "src/base/log.h"
#include "src/core/comm.h"

void comm_mem_deregister(struct dicomm_comm *comm, struct mem_handles *held)
{
	for (size_t i = 0; i < COMM_WIRES; i++)
		if (held->wires & 1u << i)
			comm->wires[i].transport->mem_dereg(
				comm->wires[i].device, held->on[i]);
	held->wires = 0;
}

dicomm_result_t comm_mem_register(struct dicomm_comm *comm, const void *addr,
				  size_t len, bool written,
				  struct mem_handles *held)
{
	dicomm_result_t status;

	held->wires = 0;
	for (size_t i = 0; i < COMM_WIRES; i++) {
		struct wire *w = &comm->wires[i];

		if (!w->device)
			continue;
		status = w->transport->mem_reg(w->device, addr, len, written,
					       &held->on[i]);
		if (status != DICOMM_SUCCESS) {
			comm_mem_deregister(comm, held);
			return status;
		}
		held->wires |= 1u << i;
	}
	return DICOMM_SUCCESS;
}

dicomm_result_t comm_memory_get(struct dicomm_comm *comm, size_t bytes,
				const char *what, uint8_t **out,
				struct mem_handles *held)
{
	uint8_t *memory = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
	dicomm_result_t status;

	if (!memory)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "operation: no memory for %zu bytes of %s", bytes,
			    what);
	status = comm_mem_register(comm, memory, bytes, true, held);
	if (status != DICOMM_SUCCESS) {
		free(memory);
		return status;
	}
	*out = memory;
	return DICOMM_SUCCESS;
}

void comm_memory_put(struct dicomm_comm *comm, uint8_t *memory,
		     struct mem_handles *held)
{
	if (!memory)
		return;
	comm_mem_deregister(comm, held);
	if (memory == comm->scratch.at && comm->scratch.shared)
		accels[0]->free(memory);
	else
		free(memory);
}
