/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/topo/rates.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"

/* A rate that differs by less from what was expected has not changed. */
#define is_below(x, expected) ((x) < (expected) - (expected) / 4)
#define is_above(x, expected) ((x) > (expected) + (expected) / 4)

/* ---- who meets whom ---- */

/* Seats round a table, one more than there are nodes where they are odd. */
static uint32_t seats_of(uint32_t nodes)
{
	return nodes + nodes % 2;
}

uint32_t rates_rounds(uint32_t nodes)
{
	uint32_t all = nodes > 1 ? seats_of(nodes) - 1 : 0;

	return all < RATES_ROUNDS ? all : RATES_ROUNDS;
}

/* As in a tournament, of which some rounds are played where there are many. */
uint32_t rates_partner(uint32_t nodes, uint32_t round, uint32_t node)
{
	uint32_t all = seats_of(nodes) - 1, partner;

	round = (uint32_t)((uint64_t)round * all / rates_rounds(nodes));
	if (node == all)
		partner = round % 2 ? (round + all) / 2 : round / 2;
	else if (2 * (uint64_t)node % all == round)
		partner = all;
	else
		partner = (round + all - node) % all;
	return partner < nodes ? partner : RATES_UNKNOWN;
}

/* ---- what ways carry ---- */

struct way {
	uint64_t most; /* the fastest flow; 0: none */
	bool blamed;   /* a flow was slow, and nothing speaks for this way */
};

struct sums {
	const struct links *old;
	const uint32_t *flow;
	uint32_t rounds;
	struct way *up, *down; /* [node] */
};

/* Bytes per second to a node from its partner; 0: not known. Between islands
 * there are other ways, too. */
static uint64_t flow_to(const struct sums *s, uint32_t node, uint32_t round,
			uint32_t *partner)
{
	uint32_t x = s->flow[(size_t)node * RATES_ROUNDS + round];

	*partner = rates_partner(s->old->nodes, round, node);
	if (*partner == RATES_UNKNOWN || x == RATES_UNKNOWN ||
	    s->old->island_of[node] != s->old->island_of[*partner])
		return 0;
	return (uint64_t)x * 1000;
}

static void find_most(const struct sums *s)
{
	uint32_t from;

	for (uint32_t n = 0; n < s->old->nodes; n++)
		for (uint32_t r = 0; r < s->rounds; r++) {
			uint64_t x = flow_to(s, n, r, &from);

			if (!x)
				continue;
			if (x > s->down[n].most)
				s->down[n].most = x;
			if (x > s->up[from].most)
				s->up[from].most = x;
		}
}

/* A slow flow is due to the way that has carried nothing faster; to both, if
 * neither has. */
static void find_blame(const struct sums *s)
{
	const struct links *l = s->old;
	uint32_t from;

	for (uint32_t n = 0; n < l->nodes; n++)
		for (uint32_t r = 0; r < s->rounds; r++) {
			uint64_t x = flow_to(s, n, r, &from), expected;

			if (!x)
				continue;
			expected = links_slower(links_node(l, from)->nic.up,
						links_node(l, n)->nic.down);
			if (expected && !is_below(x, expected))
				continue;
			if (!is_above(s->up[from].most, x))
				s->up[from].blamed = true;
			if (!is_above(s->down[n].most, x))
				s->down[n].blamed = true;
		}
}

/* Does the old rate of a way no longer hold? */
static bool is_new(const struct way *w, uint64_t old, bool known)
{
	return w->most &&
	       (!known || w->blamed || (old && is_above(w->most, old)));
}

static int by_rate(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

/*
 * Rates within a fifth of the highest one are one: their mean. What was
 * measured of equal ways is never quite equal, and plans would follow that.
 */
static uint64_t level_of(const uint64_t *sorted, size_t n, uint64_t rate)
{
	uint64_t sum = 0, top = 0;
	size_t of = 0;

	for (size_t i = 0; i < n; i++) {
		if (!of || sorted[i] < top - top / 5) {
			if (of && rate > sorted[i])
				break;
			top = sorted[i];
			sum = of = 0;
		}
		sum += sorted[i];
		of++;
	}
	return sum / of;
}

/* In place of the nodes' rates; how many were replaced. */
static size_t replace(const struct sums *s, bool known, uint64_t *sorted,
		      struct links *l)
{
	size_t n = 0, changes = 0;

	for (uint32_t i = 0; i < l->nodes; i++) {
		const struct links_pipe *nic = &links_node(s->old, i)->nic;

		if (is_new(&s->up[i], nic->up, known))
			sorted[n++] = s->up[i].most;
		if (is_new(&s->down[i], nic->down, known))
			sorted[n++] = s->down[i].most;
	}
	qsort(sorted, n, sizeof(*sorted), by_rate);
	for (uint32_t i = 0; i < l->nodes; i++) {
		struct links_pipe *nic = &l->class[i].nic;

		if (is_new(&s->up[i], nic->up, known)) {
			nic->up = level_of(sorted, n, s->up[i].most);
			changes++;
		}
		if (is_new(&s->down[i], nic->down, known)) {
			nic->down = level_of(sorted, n, s->down[i].most);
			changes++;
		}
	}
	return changes;
}

dicomm_result_t rates_links(const struct links *old, bool known,
			    const uint32_t *flow, struct links **out,
			    bool *changed)
{
	size_t n = old->nodes;
	struct sums s = {
		.old = old, .flow = flow, .rounds = rates_rounds(old->nodes)};
	uint64_t *sorted = calloc(2 * n, sizeof(*sorted));
	dicomm_result_t status = DICOMM_ERR_NO_MEMORY;

	s.up = calloc(2 * n, sizeof(*s.up));
	if (sorted && s.up) {
		s.down = s.up + n;
		find_most(&s);
		find_blame(&s);
		status = links_part(old, old->ranks, NULL, out);
	} else {
		log_error("links: no memory for %zu nodes", n);
	}
	if (status == DICOMM_SUCCESS)
		*changed = replace(&s, known, sorted, *out) > 0;
	free(sorted);
	free(s.up);
	return status;
}
