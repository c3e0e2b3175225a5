/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/core/rank_address.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/boot/control/control.h"
#include "src/core/comm.h"
#include "src/core/member.h"
#include "src/core/peer.h"

#define ADDRESS_MOST (TP_TRANSPORTS * sizeof(struct tp_blob))

/* Format: for each transport the length of its address, then its bytes. */
static uint32_t write_whole(struct dicomm_comm *comm,
			    uint8_t whole[ADDRESS_MOST])
{
	uint32_t at = 0;

	for (size_t i = 0; transports[i]; i++) {
		const struct comm_transport *w = &comm->transports[i];
		struct tp_blob address = {.len = 0};

		if (w->device)
			w->transport->address(w->device, &address);
		memcpy(whole + at, &address.len, sizeof(address.len));
		at += (uint32_t)sizeof(address.len);
		memcpy(whole + at, address.data, address.len);
		at += address.len;
	}
	return at;
}

static void begin(struct rank_address *stored, const uint8_t *whole,
		  uint32_t len)
{
	size_t n = sizeof(stored->begin);

	memset(stored, 0, sizeof(*stored));
	stored->len = len;
	memcpy(stored->begin, whole, len < n ? len : n);
}

void rank_address_fill(struct dicomm_comm *comm, struct rank_address *stored)
{
	uint8_t whole[ADDRESS_MOST];
	uint32_t len = write_whole(comm, whole);

	begin(stored, whole, len);
}

dicomm_result_t rank_address_complete(struct dicomm_comm *comm)
{
	uint8_t whole[ADDRESS_MOST] = {0}, *rests;
	const size_t n = sizeof(comm->members->address.begin);
	size_t longest = 0;
	dicomm_result_t status;

	for (int r = 0; r < comm->ranks; r++)
		if (comm->members[r].address.len > longest)
			longest = comm->members[r].address.len;
	if (longest > ADDRESS_MOST)
		return FAIL(DICOMM_ERR_REMOTE,
			    "comm_init_rank: a rank has addresses of %zu "
			    "bytes, more than %zu",
			    longest, ADDRESS_MOST);
	free(comm->address_rests);
	comm->address_rests = NULL;
	comm->address_rest = longest > n ? (uint32_t)(longest - n) : 0;
	if (!comm->address_rest)
		return DICOMM_SUCCESS;
	rests = malloc((size_t)comm->ranks * comm->address_rest);
	if (!rests)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: no memory for the addresses");
	write_whole(comm, whole);
	status = control_allgather(comm->control, whole + n, rests,
				   comm->address_rest, comm->join_ms);
	comm->address_rests = rests;
	return status;
}

dicomm_result_t rank_address_copy(struct dicomm_comm *from,
				  struct dicomm_comm *to)
{
	struct rank_address *stored = &to->members[from->rank].address;
	const size_t n = sizeof(stored->begin);
	uint8_t whole[ADDRESS_MOST];
	uint32_t len = write_whole(from, whole);

	begin(stored, whole, len);
	if (stored->len <= n)
		return DICOMM_SUCCESS;
	to->address_rest = (uint32_t)(stored->len - n);
	to->address_rests = calloc((size_t)to->ranks, to->address_rest);
	if (!to->address_rests)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "rank %d: no memory for the addresses", from->rank);
	memcpy(to->address_rests + (size_t)from->rank * to->address_rest,
	       whole + n, to->address_rest);
	return DICOMM_SUCCESS;
}

void rank_address_read(const struct dicomm_comm *comm, int rank, size_t index,
		       struct tp_blob *address)
{
	const struct rank_address *stored = &comm->members[rank].address;
	uint8_t whole[ADDRESS_MOST];
	size_t at = 0, n = sizeof(stored->begin), len = stored->len;

	memcpy(whole, stored->begin, len < n ? len : n);
	if (len > n)
		memcpy(whole + n,
		       comm->address_rests + (size_t)rank * comm->address_rest,
		       len - n);
	address->len = 0;
	for (size_t i = 0; i <= index; i++) {
		uint32_t part;

		if (len - at < sizeof(part))
			return;
		memcpy(&part, whole + at, sizeof(part));
		at += sizeof(part);
		if (part > len - at || part > sizeof(address->data))
			return;
		if (i == index) {
			memcpy(address->data, whole + at, part);
			address->len = part;
		}
		at += part;
	}
}
