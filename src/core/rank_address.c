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

struct rank_addresses {
	uint8_t *bytes; /* behind `end` */
	size_t end[];   /* [ranks]: behind the addresses of that rank */
};

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

static const struct rank_address *part_of(const struct rank_address *first,
					  size_t stride, int rank)
{
	return (const struct rank_address *)(const void *)((const uint8_t *)
								   first +
							   (size_t)rank *
								   stride);
}

/* `rests` has `rest` bytes of each rank. */
static dicomm_result_t pack(struct dicomm_comm *comm,
			    const struct rank_address *first, size_t stride,
			    const uint8_t *rests, size_t rest)
{
	size_t n = (size_t)comm->ranks, bytes = 0, at = 0;
	struct rank_addresses *all;

	for (int r = 0; r < comm->ranks; r++)
		bytes += part_of(first, stride, r)->len;
	all = malloc(sizeof(*all) + n * sizeof(all->end[0]) + bytes);
	if (!all)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: no memory for the addresses");
	all->bytes = (uint8_t *)&all->end[n];
	for (size_t r = 0; r < n; r++) {
		const struct rank_address *part =
			part_of(first, stride, (int)r);
		size_t len = part->len, begin = sizeof(part->begin);

		if (len < begin)
			begin = len;
		memcpy(all->bytes + at, part->begin, begin);
		if (len > begin)
			memcpy(all->bytes + at + begin, rests + r * rest,
			       len - begin);
		at += len;
		all->end[r] = at;
	}
	free(comm->addresses);
	comm->addresses = all;
	return DICOMM_SUCCESS;
}

dicomm_result_t rank_address_keep(struct dicomm_comm *comm,
				  const struct rank_address *first,
				  size_t stride)
{
	uint8_t whole[ADDRESS_MOST] = {0}, *rests = NULL;
	const size_t n = sizeof(first->begin);
	size_t longest = 0, rest;
	dicomm_result_t status = DICOMM_SUCCESS;

	for (int r = 0; r < comm->ranks; r++)
		if (part_of(first, stride, r)->len > longest)
			longest = part_of(first, stride, r)->len;
	if (longest > ADDRESS_MOST)
		return FAIL(DICOMM_ERR_REMOTE,
			    "comm_init_rank: a rank has addresses of %zu "
			    "bytes, more than %zu",
			    longest, ADDRESS_MOST);
	rest = longest > n ? longest - n : 0;
	if (rest) {
		rests = malloc((size_t)comm->ranks * rest);
		if (!rests)
			return FAIL(DICOMM_ERR_NO_MEMORY,
				    "comm_init_rank: no memory for the "
				    "addresses");
		write_whole(comm, whole);
		status = control_allgather(comm->control, whole + n, rests,
					   rest, comm->join_ms);
	}
	if (status == DICOMM_SUCCESS)
		status = pack(comm, first, stride, rests, rest);
	free(rests);
	return status;
}

dicomm_result_t rank_address_copy(struct dicomm_comm *from,
				  struct dicomm_comm *to)
{
	struct rank_address *parts = calloc((size_t)to->ranks, sizeof(*parts));
	const size_t n = sizeof(parts->begin);
	uint8_t *rests = calloc((size_t)to->ranks, ADDRESS_MOST);
	uint8_t whole[ADDRESS_MOST];
	dicomm_result_t status;
	uint32_t len;

	if (!parts || !rests) {
		free(parts);
		free(rests);
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "rank %d: no memory for the addresses", from->rank);
	}
	len = write_whole(from, whole);
	begin(&parts[from->rank], whole, len);
	if (len > n)
		memcpy(rests + (size_t)from->rank * ADDRESS_MOST, whole + n,
		       len - n);
	status = pack(to, parts, sizeof(*parts), rests, ADDRESS_MOST);
	free(parts);
	free(rests);
	return status;
}

void rank_address_read(const struct dicomm_comm *comm, int rank, size_t index,
		       struct tp_blob *address)
{
	const struct rank_addresses *all = comm->addresses;
	const uint8_t *whole;
	size_t at = 0, len;

	address->len = 0;
	if (!all)
		return;
	if (rank)
		at = all->end[rank - 1];
	whole = all->bytes + at;
	len = all->end[rank] - at;
	at = 0;
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
