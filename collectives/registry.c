/* SPDX-License-Identifier: BSD-3-Clause */
/* All algorithms of this build. Of equally fast ones the first is taken. */
#include "collectives/algorithm.h"

#include <string.h>

#define ALGORITHMS(X)                   \
	X(allreduce_direct)             \
	X(allreduce_recursive_doubling) \
	X(allreduce_two_shot)           \
	X(allreduce_ring)               \
	X(reduce_direct)                \
	X(broadcast_direct)             \
	X(reduce_scatter_direct)        \
	X(reduce_scatterv_direct)       \
	X(allgather_direct)             \
	X(allgatherv_direct)            \
	X(alltoall_direct)              \
	X(alltoallv_direct)             \
	X(gather_direct)                \
	X(scatter_direct)               \
	X(barrier_dissemination)

#define DECLARE(name) extern const struct algorithm name;
ALGORITHMS(DECLARE)

#define ENTRY(name) &name,
const struct algorithm *const algorithms[] = {ALGORITHMS(ENTRY) NULL};

const struct algorithm *algorithm_find(enum coll coll, const char *name)
{
	for (int i = 0; algorithms[i]; i++)
		if (algorithms[i]->coll == coll &&
		    strcmp(algorithms[i]->name, name) == 0)
			return algorithms[i];
	return NULL;
}
