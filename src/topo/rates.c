/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/topo/rates.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"

/* Up to this number of nodes, each meets all others. */
#define FEW_NODES 8
/* Fewest rounds of pairs for more nodes than FEW_NODES. */
#define ROUNDS_OF_MANY 7

/* A rate has changed only if it differs by more than a quarter from what
 * was expected. */
#define is_below(x, expected) ((x) < (expected) - (expected) / 4)
#define is_above(x, expected) ((x) > (expected) + (expected) / 4)

dicomm_result_t rates_open(struct rates *r, uint32_t nodes)
{
	*r = (struct rates){.nodes = nodes};
	r->flow = calloc((size_t)nodes * (RATES_FLOWS + 3), sizeof(*r->flow));
	if (!r->flow)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "links: no memory for the rates of %u hosts",
			    nodes);
	r->island_of = r->flow + (size_t)nodes * RATES_FLOWS;
	r->group_of = r->island_of + nodes;
	r->turn_of = r->group_of + nodes;
	rates_forget(r);
	return DICOMM_SUCCESS;
}

void rates_close(struct rates *r)
{
	free(r->flow);
	r->flow = NULL;
}

void rates_forget(struct rates *r)
{
	for (size_t i = 0; i < (size_t)r->nodes * RATES_FLOWS; i++)
		r->flow[i] = RATES_UNKNOWN;
	memset(r->island_of, 0, r->nodes * sizeof(*r->island_of));
	r->islands = 1;
	r->stage = RATES_PAIRS;
}

void rates_add(struct rates *r, uint32_t node, const uint32_t flow[RATES_FLOWS])
{
	for (uint32_t i = 0; i < RATES_FLOWS; i++)
		if (flow[i] != RATES_UNKNOWN)
			r->flow[(size_t)node * RATES_FLOWS + i] = flow[i];
}

/* ---- who meets whom ---- */

/* Places in a round-robin tournament: the number of players, made even. */
static uint32_t seats_of(uint32_t players)
{
	return players + players % 2;
}

/* Returns the opponent of a player in a round of a round-robin tournament, or
 * RATES_UNKNOWN if the player has none. */
static uint32_t opponent(uint32_t players, uint32_t round, uint32_t player)
{
	uint32_t all = seats_of(players) - 1, other;

	if (player == all)
		other = round % 2 ? (round + all) / 2 : round / 2;
	else if (2 * (uint64_t)player % all == round)
		other = all;
	else
		other = (round + all - player) % all;
	return other < players ? other : RATES_UNKNOWN;
}

/* Returns the number of rounds at distances of powers of two. These rounds
 * connect all nodes. */
static uint32_t doublings(uint32_t nodes)
{
	uint32_t n = 0;

	while (n < RATES_ROUNDS && nodes > UINT32_C(1) << n)
		n++;
	return n;
}

/* Returns the partner at that distance. Nodes without one at that distance meet
 * each other. */
static uint32_t at_distance(uint32_t nodes, uint32_t distance, uint32_t node)
{
	uint32_t begin = node / (2 * distance) * (2 * distance);
	uint32_t end = begin + distance, half;

	if (node >= end)
		return node - distance;
	if (node + distance < nodes)
		return node + distance;
	begin = nodes > begin + distance ? nodes - distance : begin;
	end = nodes < end ? nodes : end;
	half = (end - begin) / 2;
	if (node - begin < half)
		return node + half;
	return node - begin < 2 * half ? node - half : RATES_UNKNOWN;
}

uint32_t rates_rounds(uint32_t nodes)
{
	if (nodes <= FEW_NODES)
		return nodes > 1 ? seats_of(nodes) - 1 : 0;
	return doublings(nodes) > ROUNDS_OF_MANY ? doublings(nodes)
						 : ROUNDS_OF_MANY;
}

uint32_t rates_partner(uint32_t nodes, uint32_t round, uint32_t node)
{
	uint32_t near = doublings(nodes), others;

	if (nodes <= FEW_NODES)
		return opponent(nodes, round, node);
	if (round < near)
		return at_distance(nodes, UINT32_C(1) << round, node);
	others = rates_rounds(nodes) - near;
	round = (uint32_t)((uint64_t)(round - near) * (seats_of(nodes) - 1) /
			   others);
	return opponent(nodes, round, node);
}

static uint32_t rounds_across(uint32_t islands)
{
	uint32_t all = islands > 1 ? seats_of(islands) - 1 : 0;

	return all < RATES_ACROSS ? all : RATES_ACROSS;
}

static uint32_t most_turns(uint32_t nodes)
{
	if (nodes < 3)
		return 0;
	return nodes <= RATES_FAN ? nodes : RATES_FAN + 1;
}

uint32_t rates_most_rounds(uint32_t nodes)
{
	/* With the most islands, two of them have two nodes, and the
	 * others one. */
	uint32_t islands = nodes < 4 ? 1 : nodes - 2;

	return rates_rounds(nodes) + rounds_across(islands) + most_turns(nodes);
}

uint64_t rates_most(const struct rates *r)
{
	uint64_t most = 0;

	for (size_t i = 0; i < (size_t)r->nodes * RATES_FLOWS; i++)
		if (r->flow[i] != RATES_UNKNOWN && r->flow[i] > most)
			most = r->flow[i];
	return most * 1000;
}

uint32_t rates_stage_rounds(const struct rates *r)
{
	switch (r->stage) {
	case RATES_PAIRS:
		return rates_rounds(r->nodes);
	case RATES_ISLANDS:
		return rounds_across(r->islands);
	case RATES_FANS:
		return most_turns(r->nodes);
	default:
		return 0;
	}
}

/* Islands meet as players of a tournament. Then the first node of one meets the
 * first of the other, and so on. */
static uint32_t across_partner(const struct rates *r, uint32_t round,
			       uint32_t node)
{
	uint32_t all = seats_of(r->islands) - 1, place = 0, other;

	round = (uint32_t)((uint64_t)round * all / rounds_across(r->islands));
	other = opponent(r->islands, round, r->island_of[node]);
	for (uint32_t n = 0; n < node; n++)
		place += r->island_of[n] == r->island_of[node];
	for (uint32_t n = 0; n < r->nodes; n++)
		if (r->island_of[n] == other && !place--)
			return n;
	return RATES_UNKNOWN;
}

/* The node whose turn it is meets all other nodes of its group; each of those
 * meets only this one. */
static void meet_fan(const struct rates *r, uint32_t turn, uint32_t node,
		     struct rates_meeting *m)
{
	uint32_t hub = RATES_UNKNOWN, others = 0;

	for (uint32_t n = 0; n < r->nodes; n++) {
		if (r->group_of[n] != r->group_of[node])
			continue;
		if (r->turn_of[n] == turn)
			hub = n;
		if (n != node && others < RATES_FAN)
			m->other[others++] = n;
	}
	m->begins = hub == node;
	m->others = m->begins ? others : hub != RATES_UNKNOWN;
	if (!m->begins)
		m->other[0] = hub;
}

void rates_meet(const struct rates *r, uint32_t round, uint32_t node,
		struct rates_meeting *m)
{
	uint32_t other;

	if (r->stage == RATES_FANS) {
		meet_fan(r, round, node, m);
		return;
	}
	other = r->stage == RATES_ISLANDS
			? across_partner(r, round, node)
			: rates_partner(r->nodes, round, node);
	*m = (struct rates_meeting){.others = other != RATES_UNKNOWN,
				    .other = {other}};
	/* Between islands, all nodes of the lower-numbered island send
	 * first. */
	if (m->others)
		m->begins = r->stage == RATES_ISLANDS
				    ? r->island_of[node] < r->island_of[other]
				    : node < other;
}

/* ---- what the links of nodes carry ---- */

struct node_link {
	/* bytes per second of the fastest flow over this link; 0: none */
	uint64_t most;
	/* a flow over it was slow, and no flow shows that it can carry more */
	bool blamed;
};

struct sums {
	const struct rates *rates;
	const struct links *old;
	bool known;
	struct node_link *up, *down; /* [node]; down follows up */
};

static dicomm_result_t open_sums(struct sums *s)
{
	s->up = calloc(2 * (size_t)s->rates->nodes, sizeof(*s->up));
	if (!s->up)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "links: no memory for %u nodes", s->rates->nodes);
	s->down = s->up + s->rates->nodes;
	return DICOMM_SUCCESS;
}

/* Returns the bytes per second from the partner of a round to the node, or 0 if
 * that was not measured. */
static uint64_t flow_to(const struct rates *r, uint32_t node, uint32_t round,
			uint32_t *partner)
{
	uint32_t x = r->flow[(size_t)node * RATES_FLOWS + round];

	*partner = round < RATES_ROUNDS
			   ? rates_partner(r->nodes, round, node)
			   : across_partner(r, round - RATES_ROUNDS, node);
	if (*partner == RATES_UNKNOWN || x == RATES_UNKNOWN)
		return 0;
	return (uint64_t)x * 1000;
}

/* As flow_to(), but only flows that say something about the nodes' own links.
 * Once rates are known, flows between islands do not count: if one is slow, the
 * link between the islands may be the cause. */
static uint64_t inner_flow_to(const struct sums *s, uint32_t node,
			      uint32_t round, uint32_t *partner)
{
	uint64_t x = flow_to(s->rates, node, round, partner);
	const uint32_t *island_of = s->rates->island_of;

	return x && s->known && island_of[node] != island_of[*partner] ? 0 : x;
}

static void find_most_of_pairs(const struct sums *s)
{
	uint32_t rounds = rates_rounds(s->rates->nodes), from;

	for (uint32_t n = 0; n < s->rates->nodes; n++)
		for (uint32_t r = 0; r < rounds; r++) {
			uint64_t x = inner_flow_to(s, n, r, &from);

			if (!x)
				continue;
			if (x > s->down[n].most)
				s->down[n].most = x;
			if (x > s->up[from].most)
				s->up[from].most = x;
		}
}

/* Returns the bytes per second that a node sent to several nodes at once, or
 * received from them. 0: not measured. */
static uint64_t fan_of(const struct rates *r, uint32_t node, uint32_t slot)
{
	uint32_t x = r->flow[(size_t)node * RATES_FLOWS + slot];

	return x == RATES_UNKNOWN ? 0 : (uint64_t)x * 1000;
}

/* Returns true if every node of a group that met all others was faster then. In
 * that case single flows get less than a link carries, and no link is wider
 * than the others. One node alone may well have a faster link. */
static bool all_gain(const struct sums *s, uint32_t group, uint32_t slot)
{
	const struct node_link *link = slot == RATES_FAN_UP ? s->up : s->down;
	uint32_t nodes = 0;

	for (uint32_t n = 0; n < s->rates->nodes; n++) {
		uint64_t x = fan_of(s->rates, n, slot);

		if (s->rates->group_of[n] != group || !x)
			continue;
		if (!is_above(x, link[n].most))
			return false;
		nodes++;
	}
	return nodes > 1;
}

static void add_fans(const struct sums *s, uint32_t group, uint32_t slot)
{
	struct node_link *link = slot == RATES_FAN_UP ? s->up : s->down;

	if (all_gain(s, group, slot))
		return;
	for (uint32_t n = 0; n < s->rates->nodes; n++) {
		uint64_t x = fan_of(s->rates, n, slot);

		if (s->rates->group_of[n] == group && x > link[n].most)
			link[n].most = x;
	}
}

static void find_most(const struct sums *s)
{
	find_most_of_pairs(s);
	for (uint32_t g = 0; g < s->rates->nodes; g++) {
		add_fans(s, g, RATES_FAN_UP);
		add_fans(s, g, RATES_FAN_DOWN);
	}
}

/* Blame a slow flow on the link that has carried nothing faster, or on both
 * links if neither has. */
static void blame_of_pairs(const struct sums *s)
{
	uint32_t rounds = rates_rounds(s->rates->nodes), from;
	const struct links *l = s->old;

	for (uint32_t n = 0; n < l->nodes; n++)
		for (uint32_t r = 0; r < rounds; r++) {
			uint64_t x = inner_flow_to(s, n, r, &from), expected;

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

/* Returns what the links of the other nodes of the group have carried, in
 * all. */
static uint64_t others_of(const struct rates *r, const struct node_link *link,
			  uint32_t node)
{
	uint64_t sum = 0;

	for (uint32_t n = 0; n < r->nodes; n++)
		if (n != node && r->group_of[n] == r->group_of[node])
			sum += link[n].most;
	return sum;
}

static void blame_fan(const struct sums *s, uint32_t node, uint32_t slot,
		      uint64_t old)
{
	bool up = slot == RATES_FAN_UP;
	struct node_link *link = up ? s->up : s->down;
	uint64_t x = fan_of(s->rates, node, slot), expected;

	if (!x)
		return;
	expected = links_slower(
		old, others_of(s->rates, up ? s->down : s->up, node));
	if (is_below(x, expected) && !is_above(link[node].most, x))
		link[node].blamed = true;
}

static void find_blame(const struct sums *s)
{
	blame_of_pairs(s);
	for (uint32_t n = 0; n < s->rates->nodes; n++) {
		const struct links_pipe *nic = &links_node(s->old, n)->nic;

		blame_fan(s, n, RATES_FAN_UP, nic->up);
		blame_fan(s, n, RATES_FAN_DOWN, nic->down);
	}
}

/* ---- which nodes share an island ---- */

/* Returns the lowest node of the island. Each node points to a lower one of its
 * island, the lowest to itself. */
static uint32_t lowest(uint32_t *of, uint32_t node)
{
	while (of[node] != node)
		node = of[node] = of[of[node]];
	return node;
}

static void join(uint32_t *of, uint32_t a, uint32_t b)
{
	a = lowest(of, a);
	b = lowest(of, b);
	if (a < b)
		of[b] = a;
	else
		of[a] = b;
}

/* Returns true if the flow got at least two thirds of what both of its ends
 * have carried, so that nothing between them limits it. */
static bool is_free(const struct sums *s, uint64_t x, uint32_t from,
		    uint32_t to)
{
	return 3 * x >= 2 * links_slower(s->up[from].most, s->down[to].most);
}

/* Returns how many rounds tell which nodes share an island. With many nodes,
 * only rounds in which many pairs are equally far apart do: in other rounds,
 * few pairs may cross a link between islands, which is wide enough for
 * these. */
static uint32_t rounds_that_join(uint32_t nodes)
{
	return nodes <= FEW_NODES ? rates_rounds(nodes) : doublings(nodes);
}

static void join_free(const struct sums *s, uint32_t *of)
{
	uint32_t rounds = rounds_that_join(s->rates->nodes), a, same;

	for (uint32_t n = 0; n < s->rates->nodes; n++)
		for (uint32_t r = 0; r < rounds; r++) {
			uint64_t x = flow_to(s->rates, n, r, &a), y;

			if (!x || a > n)
				continue;
			y = flow_to(s->rates, a, r, &same);
			if (y && is_free(s, x, a, n) && is_free(s, y, n, a))
				join(of, a, n);
		}
}

/* Number the islands, given the lowest node of each. A node that is alone has a
 * link of its own anyway. So there are islands only if several nodes share one,
 * and other nodes share another. */
static void number_islands(struct rates *r)
{
	uint32_t *of = r->island_of, islands = 0, shared = 0;

	for (uint32_t n = 0; n < r->nodes; n++)
		of[n] = lowest(of, n);
	for (uint32_t n = 0; n < r->nodes; n++) {
		uint32_t others = 0;

		for (uint32_t k = n + 1; of[n] == n && k < r->nodes; k++)
			others += of[k] == n;
		shared += others > 0;
	}
	/* Lower nodes have their island's number already. */
	for (uint32_t n = 0; n < r->nodes; n++)
		of[n] = of[n] == n ? islands++ : of[of[n]];
	r->islands = islands;
	if (shared > 1)
		return;
	r->islands = 1;
	memset(of, 0, r->nodes * sizeof(*of));
}

static dicomm_result_t find_islands(struct rates *r, const struct links *old)
{
	struct sums s = {.rates = r, .old = old};

	if (old->islands > 1) {
		memcpy(r->island_of, old->island_of,
		       r->nodes * sizeof(*r->island_of));
		r->islands = old->islands;
		return DICOMM_SUCCESS;
	}
	TRY(open_sums(&s));
	find_most(&s);
	for (uint32_t n = 0; n < r->nodes; n++)
		r->island_of[n] = n;
	join_free(&s, r->island_of);
	number_islands(r);
	free(s.up);
	return DICOMM_SUCCESS;
}

/* ---- which nodes may be faster than all their partners ---- */

/* Find the links whose rate a flow has shown: one that got less than the link
 * at its other end has carried with others. */
static void find_shown(const struct sums *s, bool *up, bool *down)
{
	uint32_t rounds = rates_rounds(s->rates->nodes), from;
	const uint32_t *island_of = s->rates->island_of;

	for (uint32_t n = 0; n < s->rates->nodes; n++)
		for (uint32_t r = 0; r < rounds; r++) {
			uint64_t x = flow_to(s->rates, n, r, &from);

			if (!x || island_of[n] != island_of[from])
				continue;
			up[from] = up[from] || is_above(s->down[n].most, x);
			down[n] = down[n] || is_above(s->up[from].most, x);
		}
}

/* Returns true if the other nodes of the group could take so much more that a
 * measurement is worth it. If the old rate is valid and the link has reached it
 * again, no measurement is needed. */
static bool might_be_wider(const struct sums *s, const struct node_link *link,
			   const struct node_link *others, uint32_t node,
			   uint64_t old)
{
	uint64_t most = link[node].most,
		 sum = others_of(s->rates, others, node);

	if (s->known && !is_above(old, most))
		return false;
	return most && is_above(sum, most);
}

/* Divide each island into groups of neighbouring nodes, each as large as may
 * meet at once. */
static void find_groups(struct rates *r)
{
	uint32_t first = 0;

	for (uint32_t i = 0; i < r->islands; i++) {
		uint32_t nodes = 0, place = 0, groups;

		for (uint32_t n = 0; n < r->nodes; n++)
			nodes += r->island_of[n] == i;
		groups = (nodes + RATES_FAN) / (RATES_FAN + 1);
		for (uint32_t n = 0; n < r->nodes; n++)
			if (r->island_of[n] == i)
				r->group_of[n] =
					first + place++ * groups / nodes;
		first += groups;
	}
}

static dicomm_result_t find_fans(struct rates *r, const struct links *old,
				 bool known, bool *found)
{
	struct sums s = {.rates = r, .old = old, .known = known};
	bool *up = calloc(2 * (size_t)r->nodes, sizeof(*up));
	bool *down = up + r->nodes;
	dicomm_result_t status;

	if (!up)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "links: no memory for %u nodes", r->nodes);
	status = open_sums(&s);
	if (status != DICOMM_SUCCESS)
		goto free_shown;
	find_groups(r);
	find_most(&s);
	find_shown(&s, up, down);
	*found = false;
	for (uint32_t n = 0; n < r->nodes; n++) {
		const struct links_pipe *nic = &links_node(old, n)->nic;
		uint32_t turn = 0;
		bool meets = (!up[n] &&
			      might_be_wider(&s, s.up, s.down, n, nic->up)) ||
			     (!down[n] &&
			      might_be_wider(&s, s.down, s.up, n, nic->down));

		for (uint32_t k = 0; k < n; k++)
			turn += r->group_of[k] == r->group_of[n] &&
				r->turn_of[k] != RATES_UNKNOWN;
		r->turn_of[n] = meets ? turn : RATES_UNKNOWN;
		*found |= meets;
	}
	free(s.up);
free_shown:
	free(up);
	return status;
}

dicomm_result_t rates_proceed(struct rates *r, const struct links *old,
			      bool known)
{
	bool found;

	if (r->stage == RATES_PAIRS) {
		TRY(find_islands(r, old));
		if (r->islands > 1) {
			r->stage = RATES_ISLANDS;
			return DICOMM_SUCCESS;
		}
	}
	if (r->stage == RATES_FANS) {
		r->stage = RATES_DONE;
		return DICOMM_SUCCESS;
	}
	TRY(find_fans(r, old, known, &found));
	r->stage = found ? RATES_FANS : RATES_DONE;
	return DICOMM_SUCCESS;
}

/* ---- the table ---- */

/* at: the entries of the table that were replaced. kept: rates that
 * were confirmed. */
struct news {
	uint64_t **at, *sorted, *kept;
	size_t n, nkept;
};

static dicomm_result_t open_news(struct news *news, const struct rates *r)
{
	size_t most = 2 * ((size_t)r->nodes + r->islands);

	*news = (struct news){.at = calloc(most, sizeof(*news->at)),
			      .sorted = calloc(most, sizeof(*news->sorted)),
			      .kept = calloc(most, sizeof(*news->kept))};
	if (news->at && news->sorted && news->kept)
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_NO_MEMORY, "links: no memory for %u nodes",
		    r->nodes);
}

static void close_news(struct news *news)
{
	free(news->at);
	free(news->sorted);
	free(news->kept);
}

static void replace(struct news *news, uint64_t *at, uint64_t rate)
{
	*at = rate;
	news->at[news->n++] = at;
}

static void keep(struct news *news, uint64_t rate)
{
	if (rate)
		news->kept[news->nkept++] = rate;
}

static int by_rate(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

/*
 * Returns the level of a rate: rates within a fifth of the highest one are
 * replaced by their mean. Equal links are never measured as quite equal, and
 * plans would follow the differences.
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

/* Returns the nearest of the kept rates, if it is within a fifth, otherwise the
 * rate itself. */
static uint64_t kept_of(const struct news *news, uint64_t rate)
{
	uint64_t nearest = rate, least = UINT64_MAX;

	for (size_t i = 0; i < news->nkept; i++) {
		uint64_t x = news->kept[i];
		uint64_t top = x > rate ? x : rate;
		uint64_t apart = top - (x > rate ? rate : x);

		if (apart <= top / 5 && apart < least) {
			least = apart;
			nearest = x;
		}
	}
	return nearest;
}

/* Level the entries that were replaced, from number `from` on. */
static void level(struct news *news, size_t from)
{
	size_t n = news->n - from;

	for (size_t i = 0; i < n; i++)
		news->sorted[i] = *news->at[from + i];
	qsort(news->sorted, n, sizeof(*news->sorted), by_rate);
	for (size_t i = from; i < news->n; i++)
		*news->at[i] =
			kept_of(news, level_of(news->sorted, n, *news->at[i]));
	news->nkept = 0;
}

/* Returns true if the old rate of a link is no longer right. */
static bool is_new(const struct node_link *w, uint64_t old, bool known)
{
	return w->most &&
	       (!known || w->blamed || (old && is_above(w->most, old)));
}

static void replace_rate(const struct sums *s, const struct node_link *w,
			 uint64_t *rate, struct news *news)
{
	if (is_new(w, *rate, s->known))
		replace(news, rate, w->most);
	else if (s->known)
		keep(news, *rate);
}

static void replace_nodes(const struct sums *s, struct links *l,
			  struct news *news)
{
	for (uint32_t n = 0; n < l->nodes; n++) {
		struct links_pipe *nic = &l->class[n].nic;

		replace_rate(s, &s->up[n], &nic->up, news);
		replace_rate(s, &s->down[n], &nic->down, news);
	}
	level(news, 0);
}

/* Traffic out of an island, or into it. expected: what the links of its nodes
 * would let through; UINT64_MAX if that is not limited. */
struct traffic {
	uint64_t bytes, expected;
};

static void add_flow(struct traffic *t, uint64_t x, uint64_t expected)
{
	t->bytes += x;
	if (!expected || t->expected == UINT64_MAX)
		t->expected = UINT64_MAX;
	else
		t->expected += expected;
}

/* Sum up a round between islands. t[island] is the traffic out of an island,
 * t[islands + island] that into it. */
static void add_round(const struct rates *r, const struct links *l,
		      uint32_t round, struct traffic *t)
{
	uint32_t from;

	memset(t, 0, 2 * r->islands * sizeof(*t));
	for (uint32_t n = 0; n < r->nodes; n++) {
		uint64_t x = flow_to(r, n, RATES_ROUNDS + round, &from), e;
		struct traffic *up, *down;

		if (!x)
			continue;
		e = links_slower(l->class[from].nic.up, l->class[n].nic.down);
		up = &t[r->island_of[from]];
		down = &t[r->islands + r->island_of[n]];
		add_flow(up, x, e);
		add_flow(down, x, e);
	}
}

/* Find the traffic of each island, in the round in which it was highest. */
static dicomm_result_t find_traffic(const struct rates *r,
				    const struct links *l, struct traffic **out)
{
	size_t n = 2 * (size_t)r->islands;
	struct traffic *most = calloc(2 * n, sizeof(*most)), *t = most + n;

	if (!most)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "links: no memory for %u islands", r->islands);
	for (uint32_t k = 0; k < rounds_across(r->islands); k++) {
		add_round(r, l, k, t);
		for (size_t i = 0; i < n; i++)
			if (t[i].bytes > most[i].bytes)
				most[i] = t[i];
	}
	*out = most;
	return DICOMM_SUCCESS;
}

/* If the traffic is less than expected, the island's link limits it, and the
 * traffic is its rate. */
static void replace_link(const struct traffic *t, bool known, uint64_t *link,
			 struct news *news)
{
	bool narrow = is_below(t->bytes, t->expected);
	bool differs = !*link || is_above(t->bytes, *link) ||
		       is_below(t->bytes, *link);

	if (narrow ? differs : *link && is_above(t->bytes, *link))
		replace(news, link, t->bytes);
	else if (known)
		keep(news, *link);
}

/* Put the nodes, which were in one island, into the islands that were found. */
static dicomm_result_t make_islands(const struct rates *r, struct links *l)
{
	struct links_pipe *island = calloc(r->islands, sizeof(*island));

	if (!island)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "links: no memory for %u islands", r->islands);
	free(l->island);
	l->island = island;
	l->islands = r->islands;
	memcpy(l->island_of, r->island_of, l->nodes * sizeof(*l->island_of));
	return DICOMM_SUCCESS;
}

/* Return to one island: if no link between islands is narrow, there are
 * none. */
static void drop_islands(struct links *l)
{
	l->islands = 1;
	memset(l->island_of, 0, l->nodes * sizeof(*l->island_of));
}

static dicomm_result_t replace_islands(const struct rates *r, bool known,
				       struct links *l, struct news *news)
{
	bool found = l->islands == 1 && r->islands > 1;
	size_t before = news->n;
	struct traffic *t;

	if (r->islands == 1)
		return DICOMM_SUCCESS;
	if (found)
		TRY(make_islands(r, l));
	TRY(find_traffic(r, l, &t));
	for (uint32_t i = 0; i < r->islands; i++) {
		replace_link(&t[i], known, &l->island[i].up, news);
		replace_link(&t[r->islands + i], known, &l->island[i].down,
			     news);
	}
	free(t);
	if (found && news->n == before)
		drop_islands(l);
	else
		level(news, before);
	return DICOMM_SUCCESS;
}

dicomm_result_t rates_links(const struct rates *r, const struct links *old,
			    bool known, struct links **out, bool *changed)
{
	struct sums s = {.rates = r, .old = old, .known = known};
	struct links *l = NULL;
	struct news news;
	dicomm_result_t status;

	TRY(open_sums(&s));
	find_most(&s);
	find_blame(&s);
	status = open_news(&news, r);
	if (status == DICOMM_SUCCESS)
		status = links_part(old, old->ranks, NULL, &l);
	if (status == DICOMM_SUCCESS) {
		replace_nodes(&s, l, &news);
		status = replace_islands(r, known, l, &news);
	}
	*changed = news.n > 0;
	close_news(&news);
	free(s.up);
	if (status != DICOMM_SUCCESS) {
		links_free(l);
		return status;
	}
	/* Works out the rest from the new islands and rates. */
	return links_finish(l, out);
}
