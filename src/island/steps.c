/* SPDX-License-Identifier: BSD-3-Clause */
/* The steps of collectives that go by islands. */
#include "src/island/steps.h"

#include <stdlib.h>

#include "src/base/log.h"
#include "src/island/block.h"
#include "src/island/owner.h"
#include "src/island/piece.h"
#include "src/island/queue.h"
#include "src/island/swap.h"
#include "src/stream/submit.h"

/* ---- the part between islands ---- */

static uint32_t most_calls(const struct job *j)
{
	return j->is->equal ? 1 : island_swap_most_calls(j);
}

/* Makes the calls between islands: `items` has room for the most. */
static dicomm_result_t make_calls(const struct job *j, struct item *items,
				  uint32_t *n)
{
	dicomm_result_t status;

	*n = 0;
	for (uint32_t i = 0; i < most_calls(j); i++)
		items[i] = (struct item){.comm = j->is->comm};
	if (!j->is->equal) {
		status = island_swap_calls(j, items, n);
	} else {
		status = island_owner_call(j, &items[0]);
		*n = status == DICOMM_SUCCESS;
	}
	while (status != DICOMM_SUCCESS && *n)
		free(items[--*n].counts);
	return status;
}

dicomm_result_t island_steps_between(const struct job *j)
{
	struct item items[most_calls(j)];
	dicomm_result_t status, ended;
	uint32_t n;

	TRY(island_job_missed(j, make_calls(j, items, &n)));
	if (n == 1)
		return island_job_missed(
			j, group_call(j->is->comm, &items[0].call,
				      items[0].counts, j->stream));
	status = dicomm_group_start();
	for (uint32_t i = 0; i < n; i++)
		if (status == DICOMM_SUCCESS)
			status = group_call(j->is->comm, &items[i].call,
					    items[i].counts, j->stream);
		else
			free(items[i].counts);
	island_job_missed(j, status);
	ended = dicomm_group_end();
	return status != DICOMM_SUCCESS ? status : ended;
}

dicomm_result_t island_steps_begin(const struct job *j,
				   struct island_part **part)
{
	struct item items[most_calls(j)];
	dicomm_result_t status;
	uint32_t n;

	status = make_calls(j, items, &n);
	if (status == DICOMM_SUCCESS)
		status = island_part_begin(&j->is->parts, items, n, j->stream,
					   part);
	return island_job_missed(j, status);
}

/* ---- the collectives ---- */

size_t island_steps_scratch(const struct job *j)
{
	if (!j->is->equal)
		return island_swap_scratch(j);
	if (j->coll == COLL_REDUCE_SCATTER)
		return island_block_sums(j);
	return island_piece_is_apart(j) ? island_piece_room(j) : 0;
}

static bool is_home(const struct job *j)
{
	return j->is->of[j->root] == j->is->mine;
}

island_queue_fn *island_steps_before(const struct job *j)
{
	switch (j->coll) {
	case COLL_ALLREDUCE:
	case COLL_REDUCE:
		return island_queue_reduce_scatter;
	case COLL_BROADCAST:
		return is_home(j) ? island_queue_broadcast : NULL;
	case COLL_REDUCE_SCATTER:
		return island_queue_block_sums;
	default:
		return NULL;
	}
}

island_queue_fn *island_steps_after(const struct job *j)
{
	switch (j->coll) {
	case COLL_ALLREDUCE:
		return island_queue_allgather;
	case COLL_REDUCE:
		return is_home(j) ? island_queue_to_root : NULL;
	case COLL_BROADCAST:
		return is_home(j) ? NULL : island_queue_allgather;
	case COLL_ALLGATHER:
		return island_queue_blocks;
	default:
		return NULL;
	}
}
