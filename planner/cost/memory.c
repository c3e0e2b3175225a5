/* SPDX-License-Identifier: BSD-3-Clause */
/* Closed form of a stage's memory. */
#include "planner/cost/memory.h"

#include <math.h>

int memory_in_flight(int at, int stages, int micro_batches,
		     enum plan_schedule schedule, int ahead)
{
	int most = 1 + (stages - 1 - at) * (1 + ahead);

	if (schedule == PLAN_GPIPE || most > micro_batches)
		return micro_batches;
	return most;
}

void memory_of(const struct job *j, const struct table *t, int first, int last,
	       bool recompute, int at, int stages, int micro_batches,
	       const struct plan *p, struct memory *out)
{
	int replicas = p->pipelines, zero = p->zero;
	const struct fleet_type *type =
		&j->fleet.type[j->fleet.kind[t->kind].type];
	double params = table_params(t, first, last), state[3];
	double spread = table_spread(t, first, last, replicas);

	table_state_bytes(j, state);
	out->weights = state[0] * (zero >= 3 ? spread : params);
	out->gradients = state[1] * (zero >= 2 ? spread : params);
	out->optimizer = state[2] * (zero >= 1 ? spread : params);
	out->in_flight = memory_in_flight(at, stages, micro_batches,
					  p->schedule, p->ahead);
	/* Computed again, a unit needs all of its activations, one unit at a
	 * time. */
	out->work = table_work(t, first, last, recompute);
	if (recompute)
		out->activations =
			out->in_flight * (t->kept[last + 1] - t->kept[first]);
	else
		out->activations = out->in_flight *
				   (t->active[last + 1] - t->active[first]);
	out->reserved = type->reserved;
	out->limit = type->memory;
	out->bucket = replicas > 1 ? fmin(p->bucket, state[1] * params) : 0;
	out->total =
		out->weights + out->gradients + out->optimizer + out->reserved;
	if (p->overlap == PLAN_OVERLAP_FULL)
		out->total += out->activations + out->work + out->bucket;
	else
		out->total += fmax(out->activations + out->work, out->bucket);
}
