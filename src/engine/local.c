/* SPDX-License-Identifier: BSD-3-Clause */
/* Work of one rank in the order of its collectives. */
#include "src/base/log.h"
#include "src/engine/engine.h"
#include "src/engine/order.h"
#include "src/engine/step.h"
#include "src/engine/trace.h"

/* No other rank queries it, so it needs no number. */
static dicomm_result_t post(struct operation *op)
{
	op->number = 0;
	op->comm->stats.operations++;
	order_join(op, &op->comm->last_collective);
	return DICOMM_SUCCESS;
}

static dicomm_result_t run(struct operation *op, bool *progressed)
{
	const struct local_work *work = op->call.work;
	const struct step_ops *device = op->comm->device_ops;

	if (device)
		TRY(device->progress(op->comm, progressed));
	if (op->started)
		return DICOMM_SUCCESS;
	op->started = *progressed = true;
	if (trace_on)
		trace_begun(op);
	return device ? device->work(op->comm, work) : work->run(work, NULL);
}

static enum schedule_result turn(struct operation *op, bool *progressed)
{
	dicomm_result_t status;

	if (op->before)
		return SCHEDULE_AGAIN;
	status = run(op, progressed);
	if (status != DICOMM_SUCCESS)
		return step_fail(op, status, -1);
	return op->comm->device_ops ? op->comm->device_ops->end(op)
				    : SCHEDULE_DONE;
}

const struct operation_kind local_kind = {
	.name = "local", .post = post, .turn = turn};
