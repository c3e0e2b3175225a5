/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives of islands as they run. */
#include "src/island/job.h"

#include <stdlib.h>

#include "src/base/log.h"
#include "src/core/fault.h"
#include "src/core/memory.h"
#include "src/memory/blocked_streams.h"

struct island_scratch {
	const void *stream;
	uint8_t *at;
	size_t bytes;
	bool captured; /* of a call in a graph */
	bool shared;   /* by calls that come one after the other */
	struct island_scratch *next;
};

dicomm_result_t island_job_missed(const struct job *j, dicomm_result_t status)
{
	struct dicomm_comm *comm = j->is->comm;

	if (status == DICOMM_SUCCESS || fault_is(comm))
		return status;
	return fault_own(comm, status, -1);
}

static size_t power_of_two(size_t bytes)
{
	size_t room = 4096;

	while (room < bytes)
		room *= 2;
	return room;
}

static dicomm_result_t take_memory(const struct dicomm_comm *comm, size_t bytes,
				   void **at)
{
	const struct accel *accel = comm->accel;
	dicomm_result_t status;
	bool none;

	none = comm->dev && streams_unblocked_await(accel->work, comm->index);
	status = accel->alloc(comm->index, bytes, at);
	if (none)
		streams_unblocked_end();
	return status;
}

/* What a captured call has between the stops of its graph is its own, for it is
 * replayed beside others. But an all-reduce uses its scratch only while it is
 * at a stop, and those on one stream come one after the other. */
static bool is_shared(const struct job *j)
{
	return !j->captured || j->coll == COLL_ALLREDUCE;
}

static bool fits(const struct island_scratch *s, const struct job *j,
		 size_t bytes)
{
	return s->bytes >= bytes && s->stream == j->stream && s->shared &&
	       s->captured == j->captured && is_shared(j);
}

/* Earlier calls on the stream use what it has; so it is kept where it has to
 * grow, by half of all at least. */
dicomm_result_t island_job_scratch(struct job *j, size_t bytes)
{
	struct island_scratch *s = j->is->scratch;
	struct dicomm_comm *comm = j->is->comm;
	void *at;

	while (s && !fits(s, j, bytes))
		s = s->next;
	if (!s) {
		bytes = power_of_two(bytes);
		s = calloc(1, sizeof(*s));
		if (!s)
			return FAIL(DICOMM_ERR_NO_MEMORY,
				    "island: out of memory");
		if (take_memory(comm, bytes, &at) != DICOMM_SUCCESS) {
			free(s);
			return FAIL(DICOMM_ERR_NO_MEMORY,
				    "island: no memory of %s for %zu bytes",
				    comm->device, bytes);
		}
		*s = (struct island_scratch){.stream = j->stream,
					     .at = at,
					     .bytes = bytes,
					     .captured = j->captured,
					     .shared = is_shared(j),
					     .next = j->is->scratch};
		j->is->scratch = s;
	}
	j->scratch = s->at;
	return DICOMM_SUCCESS;
}

void island_free_scratch(struct island *is)
{
	struct island_scratch *s;

	while ((s = is->scratch)) {
		is->scratch = s->next;
		island_free(is->comm, s->at);
		free(s);
	}
}
