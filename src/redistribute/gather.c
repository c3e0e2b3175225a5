/* SPDX-License-Identifier: BSD-3-Clause */
/* Gathers bytes of host memory, on any device. */
#include <stdlib.h>

#include "src/base/log.h"
#include "src/redistribute/redistribute.h"

dicomm_result_t gather_blocks(struct dicomm_comm *comm, const void *mine,
			      void *all, const size_t *bytes)
{
	size_t *displs = calloc((size_t)comm->ranks + 1, sizeof(*displs));
	size_t own = bytes[comm->rank], sum = 0;
	void *to = all, *from = (void *)(uintptr_t)mine;
	dicomm_result_t status = DICOMM_SUCCESS;
	void *memory = NULL;

	if (!displs)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "redistribute: no memory for %d ranks",
			    comm->ranks);
	for (int r = 0; r < comm->ranks; r++) {
		displs[r] = sum;
		sum += bytes[r];
	}
	if (comm->dev) {
		status = dicomm_comm_mem_alloc(comm, &memory, sum + own + 1);
		to = memory;
		from = (char *)memory + sum;
	}
	if (status == DICOMM_SUCCESS && comm->dev)
		status = dicomm_comm_memcpy(comm, from, mine, own, NULL);
	if (status == DICOMM_SUCCESS)
		status = dicomm_allgatherv(from, to, bytes, displs,
					   DICOMM_UINT8, comm, NULL);
	if (status == DICOMM_SUCCESS && comm->dev)
		status = dicomm_comm_memcpy(comm, all, to, sum, NULL);
	dicomm_mem_free(memory);
	free(displs);
	return status;
}

dicomm_result_t gather_bytes(struct dicomm_comm *comm, const void *mine,
			     void *all, size_t bytes)
{
	size_t *each = calloc((size_t)comm->ranks, sizeof(*each));
	dicomm_result_t status;

	if (!each)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "redistribute: no memory for %d ranks",
			    comm->ranks);
	for (int r = 0; r < comm->ranks; r++)
		each[r] = bytes;
	status = gather_blocks(comm, mine, all, each);
	free(each);
	return status;
}
