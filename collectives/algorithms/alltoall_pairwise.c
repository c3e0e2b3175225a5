/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pairwise all-to-all. In round k, ranks whose places on the path add up to k
 * (modulo N) exchange their blocks. Blocks for distant ranks go first.
 *
 * Hops     1; N rounds of exchanges, for N ranks
 * Sent     S (N - 1) / N bytes per rank, for S bytes of input
 * Memory   none; a few slices in place
 * Best     ranks that can talk to only one other rank at a time
 */
#include "collectives/plan/algorithm.h"

/*
 * In place, the incoming block overwrites the outgoing one. If a rank sent from
 * there, it would have to wait until its peer has read the block, while the
 * peer waits for this rank in the same way. So the outgoing block leaves
 * through scratch, which has room for ROOM blocks: an exchange only waits for
 * the one ROOM before it. All ranks order their exchanges alike, by distance
 * and round, so some rank can always go on.
 */
#define ROOM 4

static void exchange(struct plan *p, const struct shape *s, int peer,
		     struct span room)
{
	struct span out = plan_block(PLAN_SEND, (uint32_t)peer);

	room.like = (uint32_t)peer;
	if (s->in_place) {
		plan_copy(p, room, out);
		out = room;
	}
	plan_send(p, peer, out);
	plan_recv(p, peer, plan_block(PLAN_RECV, (uint32_t)peer));
}

static void build(struct plan *p, const struct shape *s)
{
	uint32_t me = (uint32_t)s->rank, n = 0;
	uint32_t scratch = plan_scratch(p, s->in_place ? ROOM : 0);

	for (int far = shape_farthest(s); far >= 0; far--)
		for (int k = 0; k < s->ranks; k++) {
			int peer = shape_on_path(s, k - 2 * shape_place(s));

			if (peer != s->rank && shape_distance(s, peer) == far)
				exchange(p, s, peer,
					 plan_block(PLAN_SCRATCH,
						    scratch + n++ % ROOM));
		}
	plan_copy(p, plan_block(PLAN_RECV, me), plan_block(PLAN_SEND, me));
}

ALGORITHM_AND_V(alltoall_pairwise, COLL_ALLTOALL, alltoallv_pairwise,
		COLL_ALLTOALLV, .name = "pairwise", .serves = shape_any,
		.build = build, .work = work_direct);
