/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct all-to-all. Each rank sends all its blocks at once. Blocks for distant
 * ranks go first, so that links that many ranks share are busy from the start.
 *
 * Hops     1
 * Sent     S (N - 1) / N bytes per rank, for N ranks and S bytes of input
 * Memory   none; a few slices in place
 * Best     anything but tiny blocks among many ranks
 */
#include "collectives/plan/algorithm.h"

extern const struct algorithm alltoall_pairwise;

static void build(struct plan *p, const struct shape *s)
{
	uint32_t me = (uint32_t)s->rank;

	/* In place, the order matters, so take that of pairwise. Peers that are
	 * not in place see the same messages. */
	if (s->in_place) {
		alltoall_pairwise.build(p, s);
		return;
	}

	for (int far = shape_farthest(s); far >= 0; far--)
		for (int k = 1; k < s->ranks; k++) {
			int to = shape_on_path(s, k);

			if (shape_distance(s, to) == far)
				plan_send(p, to,
					  plan_block(PLAN_SEND, (uint32_t)to));
		}
	plan_copy(p, plan_block(PLAN_RECV, me), plan_block(PLAN_SEND, me));
	for (int far = shape_farthest(s); far >= 0; far--)
		for (int k = 1; k < s->ranks; k++) {
			int from = shape_on_path(s, -k);

			if (shape_distance(s, from) == far)
				plan_recv(
					p, from,
					plan_block(PLAN_RECV, (uint32_t)from));
		}
}

/* Pairwise costs the same. This one comes first in the registry, so it is
 * taken. */
ALGORITHM_AND_V(alltoall_direct, COLL_ALLTOALL, alltoallv_direct,
		COLL_ALLTOALLV, .name = "direct", .serves = shape_any,
		.build = build, .work = work_direct);
