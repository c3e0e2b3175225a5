/* SPDX-License-Identifier: BSD-3-Clause */
/* Which collectives go by islands. */
#include <stdio.h>
#include <stdlib.h>

#include "src/base/cancel.h"
#include "src/base/type.h"
#include "src/island/group.h"
#include "src/island/wave.h"
#include "src/stream/graph.h"
#include "src/stream/submit.h"

/* ---- what is done by islands ---- */

/* Types that all versions of NCCL know. Islands add up before they divide,
 * which float16 may not have room for. */
static bool reduces_so(const struct call *call)
{
	if (call->type > DICOMM_BFLOAT16)
		return false;
	switch (call->op) {
	case DICOMM_SUM:
	case DICOMM_PROD:
	case DICOMM_MAX:
	case DICOMM_MIN:
		return true;
	case DICOMM_AVG:
		return call->type != DICOMM_FLOAT16;
	default:
		return false;
	}
}

static const char *obstacle(const struct island *is, enum coll coll,
			    uint64_t bytes)
{
	if (*is->why)
		return is->why;
	switch (coll) {
	case COLL_ALLREDUCE:
	case COLL_REDUCE:
	case COLL_BROADCAST:
	case COLL_REDUCE_SCATTER:
	case COLL_ALLGATHER:
	case COLL_ALLTOALL:
	case COLL_ALLTOALLV:
		break;
	default:
		return "not for this collective";
	}
	return bytes < is->least[coll] ? "predicted to be slower, or less than "
					 "DICOMM_ISLAND_BYTES"
				       : NULL;
}

bool island_takes(const struct dicomm_comm *comm, const struct call *call)
{
	const struct island *is = comm->island;
	uint64_t bytes = call->count * type_bytes(call->type);

	if (!comm->has_islands || call->function > COLL_ALLTOALLV)
		return false;
	/* No rank knows all counts. */
	if (call->function == COLL_ALLTOALLV)
		return is->least[COLL_ALLTOALLV] != UINT64_MAX;
	if (call->count < (call->function == COLL_ALLTOALL ? 1 : is->pieces))
		return false;
	if (coll_has_blocks(call->function))
		bytes *= (uint64_t)comm->ranks;
	return !obstacle(is, (enum coll)call->function, bytes) &&
	       (!call_reduces(call->function) || reduces_so(call));
}

void island_explain(const struct dicomm_comm *comm, enum coll coll,
		    uint64_t bytes, dicomm_datatype_t type, char *text,
		    size_t len)
{
	const struct island *is = comm->island;
	char short_blocks[80] = "";
	const char *why;

	if (len)
		*text = '\0';
	if (!is)
		return;
	why = obstacle(is, coll, bytes);
	if (!why && coll_reduces(coll) && type > DICOMM_BFLOAT16)
		why = "the vendor's library lacks the type";
	if (coll == COLL_ALLTOALLV)
		snprintf(short_blocks, sizeof(short_blocks),
			 "; blocks of less than %zu bytes by this library",
			 is->least_block);
	if (why)
		snprintf(text, len, "  vendor islands: no: %s\n", why);
	else
		snprintf(text, len, "  vendor islands: %u, by %s%s%s\n",
			 is->islands,
			 is->library ? is->library->path : "others",
			 comm->dev || !is->library
				 ? ""
				 : "; on a stream, a call waits for its end",
			 short_blocks);
}

/* A group's calls are run when it ends. */
dicomm_result_t island_call(struct dicomm_comm *comm, const struct call *call,
			    size_t *counts, dicomm_stream_t stream)
{
	CANCEL_HELD();
	struct wave_call one = {comm, call, stream, false};
	struct item item = {.comm = comm, .call = *call, .native = stream};
	dicomm_result_t status = DICOMM_SUCCESS;

	if (group_open())
		return group_keep(comm, call, counts, stream, island_group_run);
	/* What is refused is so before a part of it is in the graph. */
	if (comm->dev)
		status = graph_captures(&item, 1, NULL, &one.captured);
	if (status == DICOMM_SUCCESS)
		status = island_wave_run(&one, 1);
	free(counts);
	return status;
}
