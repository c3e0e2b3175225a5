/* SPDX-License-Identifier: BSD-3-Clause */
/* Closed form of a stage's memory. */
#include "planner/cost/memory.h"

#include <math.h>

#include "planner/cost/order.h"

int memory_in_flight(int at, int stages, int micro_batches,
		     enum plan_schedule schedule, int ahead)
{
	int most = 1 + (stages - 1 - at) * (1 + ahead);

	/* Until gradients of weights are found, too. */
	if (schedule == PLAN_ZB_H1)
		most = stages;
	if (schedule == PLAN_GPIPE || most > micro_batches)
		return micro_batches;
	return most;
}

int memory_again(int at, int in_flight, enum plan_schedule schedule)
{
	if (schedule != PLAN_ZB_H1)
		return 0;
	return at + 1 < in_flight ? at + 1 : in_flight;
}

static double total_of(const struct memory *m, enum plan_overlap overlap)
{
	double state = m->weights + m->gradients + m->optimizer + m->reserved;

	if (overlap == PLAN_OVERLAP_FULL)
		return state + m->activations + m->work + m->bucket;
	return state + fmax(m->activations + m->work, m->bucket);
}

void memory_of(const struct job *j, const struct table *t, int first, int last,
	       bool recompute, int at, int stages, int micro_batches,
	       const struct plan *p, struct memory *out)
{
	int replicas = p->pipelines, zero = p->zero, again;
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
	again = memory_again(at, out->in_flight, p->schedule);
	/* Computed again, a unit needs all of its activations, one unit at a
	 * time, unless those of all stay. */
	out->work = table_work(t, first, last, recompute && !again);
	if (recompute) {
		out->activations =
			out->in_flight * (t->kept[last + 1] - t->kept[first]);
		out->activations +=
			again * (t->active[last + 1] - t->active[first] -
				 t->kept[last + 1] + t->kept[first]);
	} else {
		out->activations = out->in_flight *
				   (t->active[last + 1] - t->active[first]);
	}
	out->reserved = type->reserved;
	out->limit = type->memory;
	out->bucket = replicas > 1 ? fmin(p->bucket, state[1] * params) : 0;
	out->total = total_of(out, p->overlap);
}

/* Chunks are not alike: which of them are in flight is looked up. */
static double most_active(struct memory *in, int chunks, int at, int teams,
			  int micro_batches)
{
	double each[PLAN_CHUNKS_MOST], now = 0, most = 0;
	int flying[PLAN_CHUNKS_MOST] = {0};

	for (int c = 0; c < chunks; c++) {
		each[c] = in[c].activations / in[c].in_flight;
		in[c].in_flight = 0;
	}
	for (int k = 0; k < 2 * chunks * micro_batches; k++) {
		struct order_pass x =
			order_interleaved(at, teams, chunks, micro_batches, k);
		int c = x.chunk;

		flying[c] += x.forward ? 1 : -1;
		now += x.forward ? each[c] : -each[c];
		most = fmax(most, now);
		if (flying[c] > in[c].in_flight)
			in[c].in_flight = flying[c];
	}
	return most;
}

void memory_join(struct memory *in, int chunks, int at, int teams,
		 int micro_batches, const struct plan *p, struct memory *out)
{
	*out = (struct memory){.reserved = in[0].reserved,
			       .limit = in[0].limit};
	for (int c = 0; c < chunks; c++) {
		out->weights += in[c].weights;
		out->gradients += in[c].gradients;
		out->optimizer += in[c].optimizer;
		out->bucket = fmin(p->bucket, out->bucket + in[c].bucket);
		out->work = fmax(out->work, in[c].work);
	}
	out->activations = most_active(in, chunks, at, teams, micro_batches);
	for (int c = 0; c < chunks; c++)
		if (in[c].in_flight > out->in_flight)
			out->in_flight = in[c].in_flight;
	out->total = total_of(out, p->overlap);
}
