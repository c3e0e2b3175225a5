/* SPDX-License-Identifier: BSD-3-Clause */
/* All algorithms of this build. If several are predicted to be equally fast,
 * the first one in this list is taken. */
#include "collectives/plan/algorithm.h"

#include <string.h>

#define ALGORITHMS(X)                       \
	X(allreduce_direct)                 \
	X(allreduce_recursive_doubling)     \
	X(allreduce_two_shot)               \
	X(allreduce_ring)                   \
	X(allreduce_halving_doubling)       \
	X(allreduce_tree)                   \
	X(allreduce_ordered)                \
	X(allreduce_weighted)               \
	X(allreduce_hierarchical)           \
	X(allreduce_islands)                \
	X(reduce_direct)                    \
	X(reduce_binomial)                  \
	X(reduce_chain)                     \
	X(reduce_ordered)                   \
	X(broadcast_direct)                 \
	X(broadcast_binomial)               \
	X(broadcast_chain)                  \
	X(broadcast_scatter_allgather)      \
	X(reduce_scatter_direct)            \
	X(reduce_scatter_recursive_halving) \
	X(reduce_scatter_ring)              \
	X(reduce_scatter_ordered)           \
	X(reduce_scatter_hierarchical)      \
	X(reduce_scatter_islands)           \
	X(reduce_scatterv_direct)           \
	X(reduce_scatterv_ring)             \
	X(reduce_scatterv_ordered)          \
	X(reduce_scatterv_hierarchical)     \
	X(reduce_scatterv_islands)          \
	X(allgather_direct)                 \
	X(allgather_recursive_doubling)     \
	X(allgather_bruck)                  \
	X(allgather_ring)                   \
	X(allgather_hierarchical)           \
	X(allgather_islands)                \
	X(allgatherv_direct)                \
	X(allgatherv_ring)                  \
	X(allgatherv_hierarchical)          \
	X(allgatherv_islands)               \
	X(alltoall_direct)                  \
	X(alltoall_pairwise)                \
	X(alltoall_bruck)                   \
	X(alltoallv_direct)                 \
	X(alltoallv_pairwise)               \
	X(gather_direct)                    \
	X(gather_binomial)                  \
	X(scatter_direct)                   \
	X(scatter_binomial)                 \
	X(gatherv_direct)                   \
	X(scatterv_direct)                  \
	X(barrier_dissemination)            \
	X(barrier_tree)

#define DECLARE(name) extern const struct algorithm name;
ALGORITHMS(DECLARE)

#define ENTRY(name) &name,
const struct algorithm *const algorithms[] = {ALGORITHMS(ENTRY) NULL};

/* struct select_table has one bit for each algorithm. */
_Static_assert(sizeof(algorithms) / sizeof(*algorithms) <= 129,
	       "too many algorithms");

const struct algorithm *algorithm_find(enum coll coll, const char *name)
{
	for (int i = 0; algorithms[i]; i++)
		if (algorithms[i]->coll == coll &&
		    strcmp(algorithms[i]->name, name) == 0)
			return algorithms[i];
	return NULL;
}
