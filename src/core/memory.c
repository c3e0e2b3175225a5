/* SPDX-License-Identifier: BSD-3-Clause */
/* Registers memory with all transports of a communicator. */
#include "src/core/memory.h"

#include <stdlib.h>

#include "src/accel/accel.h"
#include "src/base/log.h"
#include "src/core/comm.h"

void comm_mem_deregister(struct dicomm_comm *comm, struct mem_handles *handles)
{
	for (size_t i = 0; i < TP_TRANSPORTS; i++)
		if (handles->transports & 1u << i)
			comm->transports[i].transport->mem_dereg(
				comm->transports[i].device, handles->on[i]);
	handles->transports = 0;
}

dicomm_result_t comm_mem_register(struct dicomm_comm *comm, const void *addr,
				  size_t len, bool written,
				  struct mem_handles *handles)
{
	dicomm_result_t status;

	handles->transports = 0;
	comm_each_transport (w, comm) {
		size_t i = (size_t)(w - comm->transports);

		status = w->transport->mem_reg(w->device, addr, len, written,
					       &handles->on[i]);
		if (status != DICOMM_SUCCESS) {
			comm_mem_deregister(comm, handles);
			return status;
		}
		handles->transports |= 1u << i;
	}
	return DICOMM_SUCCESS;
}

dicomm_result_t comm_mem_alloc(struct dicomm_comm *comm, size_t bytes,
			       const char *what, uint8_t **out,
			       struct mem_handles *handles)
{
	uint8_t *memory = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
	dicomm_result_t status;

	if (!memory)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "operation: no memory for %zu bytes of %s", bytes,
			    what);
	status = comm_mem_register(comm, memory, bytes, true, handles);
	if (status != DICOMM_SUCCESS) {
		free(memory);
		return status;
	}
	*out = memory;
	return DICOMM_SUCCESS;
}

void comm_mem_free(struct dicomm_comm *comm, uint8_t *memory,
		   struct mem_handles *handles)
{
	if (!memory)
		return;
	comm_mem_deregister(comm, handles);
	if (memory == comm->scratch.at && comm->scratch.shared)
		accels[0]->free(memory);
	else
		free(memory);
}
