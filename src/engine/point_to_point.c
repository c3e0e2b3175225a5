/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives without a tag, of known peers: plans of one step. */
#include "src/engine/engine.h"
#include "src/engine/planned.h"

static enum schedule_result turn(struct operation *op, bool *progressed)
{
	enum schedule_result r = planned_turn(op, progressed);

	if (r == SCHEDULE_DONE && op->call.status)
		*op->call.status = (dicomm_status_t){.source = op->call.root,
						     .count = op->call.count};
	return r;
}

const struct operation_kind point_to_point_kind = {.name = "point-to-point",
						   .post = planned_post,
						   .turn = turn,
						   .awaits = planned_awaits};
