/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/comm/common_transports.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/host.h"
#include "src/base/log.h"
#include "src/boot/control/control.h"
#include "src/core/member.h"
#include "src/core/paths.h"

/* What all ranks tell, by groups of ranks. */
struct told {
	int ranks;
	size_t groups;
	uint32_t *of;    /* [rank]: its group */
	uint32_t *kind;  /* [rank]: the first rank that is just like it */
	uint32_t *kinds; /* those first ranks */
	/* [rank]: of each group the transports to its ranks, then 1 if these
	 * are not equal */
	uint8_t *rows;
};

static const uint8_t *row(const struct told *t, int rank)
{
	return t->rows + (size_t)rank * (t->groups + 1);
}

static dicomm_result_t fail_memory(int ranks)
{
	return FAIL(DICOMM_ERR_NO_MEMORY,
		    "comm_init_rank: no memory for the transports to %d ranks",
		    ranks);
}

static dicomm_result_t make(struct told *t, int ranks)
{
	size_t n = (size_t)ranks;

	*t = (struct told){.ranks = ranks,
			   .of = calloc(n, sizeof(*t->of)),
			   .kind = calloc(n, sizeof(*t->kind)),
			   .kinds = calloc(n, sizeof(*t->kinds))};
	return t->of && t->kind && t->kinds ? DICOMM_SUCCESS
					    : fail_memory(ranks);
}

static void drop(struct told *t)
{
	free(t->of);
	free(t->kind);
	free(t->kinds);
	free(t->rows);
}

/* Groups are the hosts, in the order of their first ranks. */
static void group_by_host(const struct dicomm_comm *comm, struct told *t)
{
	/* The room for the kinds, which are found later, is for the first ranks
	 * of hosts. */
	t->groups =
		host_number_all(&comm->members->host, sizeof(*comm->members),
				(uint32_t)t->ranks, t->of, t->kind);
}

static void group_by_rank(struct told *t)
{
	t->groups = (size_t)t->ranks;
	for (int r = 0; r < t->ranks; r++)
		t->of[r] = (uint32_t)r;
}

/* Fills in this rank's row, behind all others. */
static uint8_t *fill(const struct dicomm_comm *comm, struct told *t)
{
	uint8_t *mine = t->rows + (size_t)t->ranks * (t->groups + 1);
	uint8_t *known = mine + t->groups + 1;

	for (int r = 0; r < t->ranks; r++) {
		uint8_t mask = comm->ways[r];
		uint32_t g = t->of[r];

		if (r == comm->rank)
			continue;
		if (known[g] && mine[g] != mask)
			mine[t->groups] = 1;
		known[g] = 1;
		mine[g] = mask;
	}
	return mine;
}

static dicomm_result_t gather(struct dicomm_comm *comm, struct told *t,
			      bool *even)
{
	dicomm_result_t status;
	uint8_t *mine;

	free(t->rows);
	t->rows = calloc((size_t)t->ranks + 2, t->groups + 1);
	if (!t->rows)
		return fail_memory(t->ranks);
	mine = fill(comm, t);
	status = control_allgather(comm->control, mine, t->rows, t->groups + 1,
				   comm->join_ms);
	*even = true;
	for (int r = 0; r < t->ranks; r++)
		*even &= !row(t, r)[t->groups];
	return status;
}

static bool are_alike(const struct told *t, uint32_t a, uint32_t b)
{
	return t->of[a] == t->of[b] &&
	       !memcmp(row(t, (int)a), row(t, (int)b), t->groups);
}

/* Finds the ranks that are alike, so that not all pairs must be looked at.
 * Returns the number of kinds. */
static size_t find_kinds(struct told *t)
{
	size_t n = 0, k = 0;

	for (uint32_t r = 0; r < (uint32_t)t->ranks; r++) {
		/* Mostly the kind of the rank before. */
		if (k == n || !are_alike(t, t->kinds[k], r))
			for (k = 0; k < n && !are_alike(t, t->kinds[k], r);)
				k++;
		if (k == n)
			t->kinds[n++] = r;
		t->kind[r] = t->kinds[k];
	}
	return n;
}

static bool is_alone(const struct told *t, uint32_t kind)
{
	for (int r = (int)kind + 1; r < t->ranks; r++)
		if (t->kind[r] == kind)
			return false;
	return true;
}

/* Returns the transport by which ranks of two kinds reach each other, as a
 * bit. */
static unsigned lowest_common(const struct told *t, uint32_t a, uint32_t b)
{
	unsigned common = row(t, (int)a)[t->of[b]] & row(t, (int)b)[t->of[a]];

	return common & (0 - common);
}

static uint8_t find_in_use(struct told *t)
{
	size_t n = find_kinds(t);
	unsigned in_use = 0, bit;

	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k <= i; k++) {
			if (k == i && is_alone(t, t->kinds[i]))
				continue;
			bit = lowest_common(t, t->kinds[i], t->kinds[k]);
			if (!bit)
				return 0;
			in_use |= bit;
		}
	}
	return (uint8_t)in_use;
}

static dicomm_result_t agree(struct dicomm_comm *comm, struct told *t,
			     uint8_t *in_use)
{
	bool even;

	for (int r = 0; r < t->ranks; r++)
		comm->ways[r] = comm_transports_to(comm, r);
	group_by_host(comm, t);
	TRY(gather(comm, t, &even));
	if (!even) {
		group_by_rank(t);
		TRY(gather(comm, t, &even));
	}
	for (int r = 0; r < t->ranks; r++)
		if (r != comm->rank)
			comm->ways[r] &= row(t, r)[t->of[comm->rank]];
	*in_use = find_in_use(t);
	return DICOMM_SUCCESS;
}

dicomm_result_t common_transports_agree(struct dicomm_comm *comm,
					uint8_t *in_use)
{
	struct told t;
	dicomm_result_t status = make(&t, comm->ranks);

	if (status == DICOMM_SUCCESS)
		status = agree(comm, &t, in_use);
	drop(&t);
	return status;
}
