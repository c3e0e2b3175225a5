/* SPDX-License-Identifier: BSD-3-Clause */
/* The collectives: names and buffer layouts. */
#include "collectives/plan/algorithm.h"

#include <ctype.h>

static const struct {
	const char *name;
	bool reduces, rooted;
} kinds[COLL_KINDS] = {
	[COLL_ALLREDUCE] = {"allreduce", true, false},
	[COLL_REDUCE] = {"reduce", true, true},
	[COLL_BROADCAST] = {"broadcast", false, true},
	[COLL_REDUCE_SCATTER] = {"reduce_scatter", true, false},
	[COLL_ALLGATHER] = {"allgather", false, false},
	[COLL_ALLTOALL] = {"alltoall", false, false},
	[COLL_GATHER] = {"gather", false, true},
	[COLL_SCATTER] = {"scatter", false, true},
	[COLL_ALLTOALLV] = {"alltoallv", false, false},
	[COLL_ALLGATHERV] = {"allgatherv", false, false},
	[COLL_REDUCE_SCATTERV] = {"reduce_scatterv", true, false},
	[COLL_GATHERV] = {"gatherv", false, true},
	[COLL_SCATTERV] = {"scatterv", false, true},
	[COLL_BARRIER] = {"barrier", false, false},
};

const char *coll_name(enum coll coll)
{
	return coll < COLL_KINDS ? kinds[coll].name : "?";
}

/* Compares two names without regard to underscores and upper case. */
static bool same_name(const char *a, const char *b)
{
	do {
		while (*a == '_')
			a++;
		while (*b == '_')
			b++;
		if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
			return false;
	} while (*a++ && *b++);
	return true;
}

enum coll coll_from_name(const char *name)
{
	for (int i = 0; i < COLL_KINDS; i++)
		if (same_name(name, kinds[i].name))
			return (enum coll)i;
	return COLL_KINDS;
}

bool coll_reduces(enum coll coll)
{
	return kinds[coll].reduces;
}

bool coll_rooted(enum coll coll)
{
	return kinds[coll].rooted;
}

bool coll_has_counts(enum coll coll)
{
	return coll == COLL_ALLGATHERV || coll == COLL_REDUCE_SCATTERV ||
	       coll_counts_in_pairs(coll);
}

bool coll_has_blocks(enum coll coll)
{
	uint32_t send, recv;

	coll_layout(coll, 0, 2, 0, &send, &recv);
	return send > 1 || recv > 1;
}

void coll_layout(enum coll coll, int rank, int ranks, int root,
		 uint32_t *send_blocks, uint32_t *recv_blocks)
{
	uint32_t n = (uint32_t)ranks;
	bool is_root = rank == root;

	*send_blocks = 1;
	*recv_blocks = 1;
	switch (coll) {
	case COLL_REDUCE:
		*recv_blocks = is_root;
		break;
	case COLL_BROADCAST:
		*send_blocks = is_root;
		break;
	case COLL_REDUCE_SCATTER:
	case COLL_REDUCE_SCATTERV:
		*send_blocks = n;
		break;
	case COLL_ALLGATHER:
	case COLL_ALLGATHERV:
		*recv_blocks = n;
		break;
	case COLL_ALLTOALL:
	case COLL_ALLTOALLV:
		*send_blocks = n;
		*recv_blocks = n;
		break;
	case COLL_GATHER:
	case COLL_GATHERV:
		*recv_blocks = is_root ? n : 0;
		break;
	case COLL_SCATTER:
	case COLL_SCATTERV:
		*send_blocks = is_root ? n : 0;
		break;
	case COLL_BARRIER:
		*send_blocks = 0;
		*recv_blocks = 0;
		break;
	case COLL_ALLREDUCE:
	case COLL_KINDS:
		break;
	}
}
