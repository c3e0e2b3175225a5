/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binomial tree reduce.
 *
 * Hops     log2 N, rounded up, for N ranks
 * Sent     S per rank; the root receives and reduces S log2 N
 * Memory   a slice
 * Best     small S and many ranks
 */
#include "collectives/algorithm.h"

static void build(struct plan *p, const struct shape *s)
{
	struct span send = plan_block(PLAN_SEND, 0);
	int me = shape_from_root(s, s->rank);
	bool leaf = me % 2 || me + 1 == s->ranks;
	struct span sum, now;

	if (me == 0)
		sum = plan_block(PLAN_RECV, 0);
	else
		sum = plan_block(PLAN_SCRATCH,
				 plan_scratch(p, !leaf || s->prescale));
	now = shape_input(p, s, send, sum);
	for (int d = 1; d < s->ranks; d *= 2) {
		if (me & d) {
			plan_send(p, shape_to_rank(s, me - d), now);
			return;
		}
		if (me + d < s->ranks) {
			plan_recv_reduce(p, shape_to_rank(s, me + d), sum, now);
			now = sum;
		}
	}
	shape_result(p, s, now);
}

static void work(const struct shape *s, uint64_t bytes, struct work *w)
{
	uint64_t others = (uint64_t)s->ranks - 1;

	w->hops = shape_log2(s);
	w->messages = w->hops;
	w->message_bytes = bytes;
	w->wire_bytes = w->hops * bytes;
	w->reduce_bytes = w->hops * bytes;
	w->total_bytes = 2 * others * bytes;
	w->pipelined = true;
}

const struct algorithm reduce_binomial = {
	.coll = COLL_REDUCE,
	.name = "binomial",
	.serves = shape_any,
	.build = build,
	.work = work,
};
