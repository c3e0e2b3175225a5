/* SPDX-License-Identifier: BSD-3-Clause */
/* Tokens to experts and back. */
#include "planner/cost/route.h"

#include <math.h>
#include <stdlib.h>

/* Beyond the one all-reduce that a feed-forward part has anyway: copies of
 * tokens are gathered and summed, and the tokens gathered last. */
static double inside(struct job *j, const struct route_team *team, double bytes,
		     double copies)
{
	struct wire *w = &j->wire;

	if (team->tp < 2)
		return 0;
	return wire_collective(w, WIRE_ALLGATHER, team->rank, NULL, NULL,
			       team->tp, copies) +
	       wire_collective(w, WIRE_REDUCE_SCATTER, team->rank, NULL, NULL,
			       team->tp, copies) +
	       wire_collective(w, WIRE_ALLGATHER, team->rank, NULL, NULL,
			       team->tp, bytes) -
	       wire_collective(w, WIRE_ALLREDUCE, team->rank, NULL, NULL,
			       team->tp, bytes);
}

double route_seconds(struct job *j, const struct route_team *team,
		     const int *others, int n, int micro_batch)
{
	double bytes = table_boundary_bytes(j, micro_batch);
	double copies = bytes * j->model.experts.active * table_load(j, n);
	uint32_t *rank = calloc((size_t)n, sizeof(*rank));
	int *width = calloc((size_t)n, sizeof(*width));
	double seconds = rank && width ? 0 : NAN, most = 0;

	if (n > 1 && !isnan(seconds)) {
		for (int i = 0; i < n; i++) {
			double s = inside(j, &team[i], bytes, copies);

			rank[i] = team[i].rank[0];
			width[i] = team[i].tp;
			most = isnan(s) || isnan(most) ? NAN : fmax(most, s);
		}
		seconds = most + 2 * wire_collective(&j->wire, WIRE_ALLTOALL,
						     rank, width, others, n,
						     copies);
	}
	free(rank);
	free(width);
	return seconds;
}
