/* SPDX-License-Identifier: BSD-3-Clause */
/* From measured flows to tables of links: what is found, what stays. */
#include <check.h>
#include <string.h>

#include "collectives/select/select.h"
#include "src/topo/rates.h"
#include "tests/support/runner.h"

#define MOST_NODES 1000
#define MBIT UINT64_C(125000)

/* A network, as it is. */
static uint64_t up_of[MOST_NODES], down_of[MOST_NODES]; /* [node] */
static uint32_t island_of[MOST_NODES];
static uint64_t out_of[MOST_NODES], into[MOST_NODES]; /* [island]; 0: wide */

static void set_nodes(const unsigned *mbit, uint32_t nodes)
{
	for (uint32_t n = 0; n < nodes; n++) {
		up_of[n] = down_of[n] = mbit[n] * MBIT;
		island_of[n] = 0;
	}
	out_of[0] = into[0] = 0;
}

/* One rank on each node; all alike, until measured. */
static struct links *some_links(uint32_t nodes)
{
	struct links *l = links_create(nodes, nodes, 1, 1);

	ck_assert_ptr_nonnull(l);
	l->class[0].nic = (struct links_pipe){10000 * MBIT, 10000 * MBIT};
	for (uint32_t n = 0; n < nodes; n++)
		l->node_of[n] = n;
	ck_assert_int_eq(links_finish(l, &l), DICOMM_SUCCESS);
	return l;
}

/* ---- what flows get that are under way at the same time ---- */

/* Ways: up and down of each node, out of and into each island. */
#define WAYS (4 * MOST_NODES)

static struct {
	uint64_t left[WAYS]; /* of its rate, not yet given away */
	uint32_t users[WAYS];
	uint32_t flows;
	struct {
		uint32_t way[4]; /* the first two again, inside */
		uint64_t rate;
		bool waits; /* for its part */
	} flow[MOST_NODES];
} net;

/* Returns its number. */
static uint32_t begin_flow(uint32_t from, uint32_t to)
{
	uint32_t a = island_of[from], b = island_of[to], f = net.flows++;
	uint32_t way[4] = {from, MOST_NODES + to, 2 * MOST_NODES + a,
			   3 * MOST_NODES + b};
	uint64_t rate[4] = {up_of[from], down_of[to], out_of[a], into[b]};

	for (int i = 0; i < 4; i++) {
		bool counts = i < 2 || (a != b && rate[i]);

		net.flow[f].way[i] = counts ? way[i] : way[0];
		if (!counts)
			continue;
		net.left[way[i]] = rate[i];
		net.users[way[i]]++;
	}
	net.flow[f].waits = true;
	return f;
}

/* The fullest way gives equal parts to all that use it; and so on. */
static bool serve_fullest(void)
{
	uint32_t fullest = WAYS;
	uint64_t part;

	for (uint32_t w = 0; w < WAYS; w++)
		if (net.users[w] &&
		    (fullest == WAYS ||
		     net.left[w] / net.users[w] <
			     net.left[fullest] / net.users[fullest]))
			fullest = w;
	if (fullest == WAYS)
		return false;
	part = net.left[fullest] / net.users[fullest];
	for (uint32_t f = 0; f < net.flows; f++) {
		const uint32_t *way = net.flow[f].way;

		if (!net.flow[f].waits ||
		    (way[0] != fullest && way[1] != fullest &&
		     way[2] != fullest && way[3] != fullest))
			continue;
		net.flow[f].waits = false;
		net.flow[f].rate = part;
		for (int i = 0; i < 4; i++) {
			if (i > 1 && way[i] == way[0])
				continue;
			net.left[way[i]] -= part;
			net.users[way[i]]--;
		}
	}
	return true;
}

static void serve(void)
{
	while (serve_fullest())
		;
}

/* Of one flow alone, at most; 0: no limit. */
static uint64_t flow_most;

/* Noise: up to 6 % less. */
static void note(struct rates *r, uint32_t node, uint32_t slot, uint64_t rate)
{
	uint32_t x = (uint32_t)(rate / 1000);

	x -= x / 100 * ((node * 7 + slot * 3) % 7);
	if (x)
		r->flow[node * RATES_FLOWS + slot] = x;
}

static uint64_t rate_of(uint32_t f)
{
	uint64_t rate = net.flow[f].rate;

	return flow_most && rate > flow_most ? flow_most : rate;
}

/* A round of pairs. */
static void measure_round(struct rates *r, uint32_t round)
{
	static uint32_t flow[MOST_NODES];
	struct rates_meeting m;

	memset(&net, 0, sizeof(net));
	for (uint32_t n = 0; n < r->nodes; n++) {
		rates_meet(r, round, n, &m);
		ck_assert_uint_le(m.others, 1);
		flow[n] = m.others ? begin_flow(m.other[0], n) : MOST_NODES;
	}
	serve();
	for (uint32_t n = 0; n < r->nodes; n++)
		if (flow[n] != MOST_NODES)
			note(r, n, rates_slot(r, round), rate_of(flow[n]));
}

/* In which one node of each group sends to the others, then they to it; both
 * have the same view of who meets whom. */
static void measure_fans(struct rates *r, uint32_t round, bool up)
{
	static uint32_t of[MOST_NODES]; /* [flow]: the one that meets many */
	struct rates_meeting m, theirs;
	uint64_t sum;

	memset(&net, 0, sizeof(net));
	for (uint32_t n = 0; n < r->nodes; n++) {
		rates_meet(r, round, n, &m);
		for (uint32_t i = 0; m.begins && i < m.others; i++) {
			rates_meet(r, round, m.other[i], &theirs);
			ck_assert_uint_eq(theirs.others, 1);
			ck_assert_uint_eq(theirs.other[0], n);
			ck_assert(!theirs.begins);
			of[up ? begin_flow(n, m.other[i])
			      : begin_flow(m.other[i], n)] = n;
		}
	}
	serve();
	for (uint32_t n = 0; n < r->nodes; n++) {
		sum = 0;
		for (uint32_t f = 0; f < net.flows; f++)
			if (of[f] == n)
				sum += rate_of(f);
		note(r, n, up ? RATES_FAN_UP : RATES_FAN_DOWN, sum);
	}
}

static void measure_stage(struct rates *r)
{
	for (uint32_t i = 0; i < rates_stage_rounds(r); i++) {
		if (r->stage != RATES_FANS) {
			measure_round(r, i);
			continue;
		}
		measure_fans(r, i, true);
		measure_fans(r, i, false);
	}
}

/* As a communicator does it. */
static bool renew(struct links **l, bool known)
{
	struct links *made;
	struct rates r;
	bool changed;

	ck_assert_int_eq(rates_open(&r, (*l)->nodes), DICOMM_SUCCESS);
	while (r.stage != RATES_DONE) {
		measure_stage(&r);
		ck_assert_int_eq(rates_proceed(&r, *l, known), DICOMM_SUCCESS);
	}
	ck_assert_int_eq(rates_links(&r, *l, known, &made, &changed),
			 DICOMM_SUCCESS);
	rates_close(&r);
	links_free(*l);
	*l = made;
	return changed;
}

static void is_near(uint64_t rate, uint64_t expected, uint32_t node)
{
	ck_assert_msg(rate * 10 > expected * 9 && rate * 10 < expected * 11,
		      "node %u: %llu, not %llu", node, (unsigned long long)rate,
		      (unsigned long long)expected);
}

static void is_found(const struct links *l)
{
	for (uint32_t n = 0; n < l->nodes; n++) {
		is_near(links_node(l, n)->nic.up, up_of[n], n);
		is_near(links_node(l, n)->nic.down, down_of[n], n);
	}
	ck_assert_uint_eq(l->islands, 1);
}

START_TEST(rounds_are_disjoint_pairs)
{
	static const uint32_t sizes[] = {2,  3,  4,  5,  6,  7,   8,   9,
					 16, 17, 33, 64, 99, 100, 999, 1000};
	uint32_t nodes = sizes[_i], met[9][9] = {{0}};

	for (uint32_t r = 0; r < rates_rounds(nodes); r++) {
		uint32_t rest = 0;

		for (uint32_t n = 0; n < nodes; n++) {
			uint32_t with = rates_partner(nodes, r, n);

			rest += with == RATES_UNKNOWN;
			if (with == RATES_UNKNOWN)
				continue;
			ck_assert_uint_lt(with, nodes);
			ck_assert_uint_ne(with, n);
			ck_assert_uint_eq(rates_partner(nodes, r, with), n);
			if (nodes <= 8)
				met[n][with]++;
		}
		ck_assert_uint_eq(rest, nodes % 2);
	}
	for (uint32_t n = 0; n < nodes && nodes <= 8; n++)
		for (uint32_t k = 0; k < nodes; k++)
			ck_assert_uint_eq(met[n][k], n != k);
}
END_TEST

START_TEST(unlike_rates_are_found)
{
	static const unsigned stars[][4] = {{800, 800, 800, 100},
					    {800, 800, 200, 100},
					    {400, 400, 400, 100},
					    {200, 200, 200, 200},
					    {100, 800, 100, 800}};
	struct links *l = some_links(4);

	set_nodes(stars[_i], 4);
	/* Unlike both ways. */
	if (_i == 0)
		up_of[0] = 400 * MBIT;
	ck_assert(renew(&l, false));
	is_found(l);
	links_free(l);
}
END_TEST

/* Nobody that it could meet is as fast; so it meets several. */
struct fast {
	uint32_t nodes, which;
	unsigned mbit, others, found;
};

static const struct fast fasts[] = {
	{4, 0, 800, 200, 600}, /* what the others can take */
	{4, 3, 800, 200, 600},
	{4, 2, 400, 200, 400},
	{3, 1, 800, 200, 400},
	{5, 0, 800, 200, 800},
	{8, 5, 1600, 200, 1400},
	{9, 8, 800, 200, 600}, /* in the group of the last four */
	{1000, 503, 8000, 2000, 8000},
	{2, 0, 800, 200, 200}, /* there is nobody else */
};

static void set_fast(const struct fast *f)
{
	for (uint32_t n = 0; n < f->nodes; n++) {
		up_of[n] = down_of[n] =
			(n == f->which ? f->mbit : f->others) * MBIT;
		island_of[n] = 0;
	}
	out_of[0] = into[0] = 0;
}

static void fast_is_found(const struct links *l, const struct fast *f)
{
	for (uint32_t n = 0; n < f->nodes; n++) {
		uint64_t rate = (n == f->which ? f->found : f->others) * MBIT;

		is_near(links_node(l, n)->nic.up, rate, n);
		is_near(links_node(l, n)->nic.down, rate, n);
	}
}

START_TEST(one_that_is_faster_than_all_is_found)
{
	struct fast f = fasts[_i];
	struct links *l = some_links(f.nodes);

	set_fast(&f);
	ck_assert(renew(&l, false));
	fast_is_found(l, &f);
	/* That it is no longer so is found as well. */
	ck_assert(!renew(&l, true));
	f.mbit = f.others;
	set_fast(&f);
	ck_assert_int_eq(renew(&l, true), f.found != f.others);
	f.found = f.others;
	fast_is_found(l, &f);
	links_free(l);
}
END_TEST

/* One way only. */
START_TEST(one_that_only_receives_fast_is_found)
{
	struct links *l = some_links(4);

	set_nodes((unsigned[]){200, 200, 200, 200}, 4);
	down_of[1] = 500 * MBIT;
	renew(&l, false);
	is_found(l);
	links_free(l);
}
END_TEST

/* What a single flow gets is less than the ways have: all of them alike, of
 * which one more flow is no news. */
START_TEST(short_flows_are_no_fast_hosts)
{
	struct links *l = some_links(4);

	set_nodes((unsigned[]){800, 800, 800, 800}, 4);
	flow_most = 200 * MBIT;
	renew(&l, false);
	for (uint32_t n = 0; n < 4; n++)
		is_near(links_node(l, n)->nic.up, flow_most, n);
	flow_most = 0;
	links_free(l);
}
END_TEST

/* Hosts that are known to be as fast as they have just been need not meet. */
START_TEST(what_explains_all_is_not_looked_at_again)
{
	struct links *l = some_links(4);
	struct rates r;

	set_nodes((unsigned[]){200, 200, 200, 200}, 4);
	renew(&l, false);
	ck_assert_int_eq(rates_open(&r, 4), DICOMM_SUCCESS);
	measure_stage(&r);
	ck_assert_int_eq(rates_proceed(&r, l, true), DICOMM_SUCCESS);
	ck_assert_int_eq(r.stage, RATES_DONE);
	rates_close(&r);
	links_free(l);
}
END_TEST

/* What is equal but for noise must be so in the table. */
START_TEST(equal_links_are_equal)
{
	struct links *l = some_links(4);

	set_nodes((unsigned[]){200, 200, 200, 200}, 4);
	renew(&l, false);
	for (uint32_t n = 0; n < 4; n++) {
		ck_assert_uint_eq(l->class[n].nic.up, l->class[0].nic.up);
		ck_assert_uint_eq(l->class[n].nic.down, l->class[0].nic.up);
	}
	links_free(l);
}
END_TEST

/* So that a chain ends with slow ones. */
START_TEST(the_path_begins_with_what_is_found_fast)
{
	static const uint32_t path[] = {2, 3, 1, 0};
	struct links *l = some_links(4);

	set_nodes((unsigned[]){100, 200, 800, 800}, 4);
	renew(&l, false);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_uint_eq(l->path[i], path[i]);
	links_free(l);
}
END_TEST

START_TEST(a_thousand_nodes_take_ten_rounds)
{
	struct links *l = some_links(MOST_NODES);

	for (uint32_t n = 0; n < MOST_NODES; n++) {
		up_of[n] = down_of[n] = (n % 10 ? 8000 : 1000) * MBIT;
		island_of[n] = 0;
	}
	ck_assert_uint_eq(rates_rounds(MOST_NODES), 10);
	renew(&l, false);
	is_found(l);
	links_free(l);
}
END_TEST

/* ---- islands ---- */

struct layout {
	uint32_t nodes, islands;
	/* Of neighbours in the order of nodes; else those of an island are so
	 * many apart as there are islands. */
	bool scattered;
	unsigned node, way; /* Mbit/s; 0: wide */
	bool in_parts;      /* they may be found as more, smaller ones */
};

static void set_layout(const struct layout *o)
{
	uint32_t size = (o->nodes + o->islands - 1) / o->islands;

	for (uint32_t n = 0; n < o->nodes; n++) {
		up_of[n] = down_of[n] = o->node * MBIT;
		island_of[n] = o->scattered ? n % o->islands : n / size;
		out_of[n] = into[n] = o->way * MBIT;
	}
}

static void are_found(const struct links *l, const struct layout *o)
{
	ck_assert_uint_ge(l->islands, o->islands);
	ck_assert(o->in_parts || l->islands == o->islands);
	for (uint32_t n = 0; n < l->nodes; n++) {
		uint32_t island = l->island_of[n];

		is_near(links_node(l, n)->nic.up, up_of[n], n);
		is_near(links_node(l, n)->nic.down, down_of[n], n);
		for (uint32_t k = 0; k < n; k++)
			ck_assert(l->island_of[k] == island
					  ? island_of[k] == island_of[n]
					  : o->in_parts ||
						    island_of[k] !=
							    island_of[n]);
		if (o->in_parts)
			continue;
		is_near(l->island[island].up, o->way * MBIT, n);
		is_near(l->island[island].down, o->way * MBIT, n);
	}
}

static const struct layout layouts[] = {
	{4, 2, false, 800, 100, false},
	{4, 2, true, 800, 100, false},
	{4, 2, false, 800, 800,
	 false}, /* of two hosts, each might have it all */
	{6, 2, false, 800, 100, false},
	{6, 3, true, 800, 200, false},
	{8, 2, true, 400, 100, false},
	{8, 4, false, 800, 400, false},
	{16, 2, false, 800, 100, false},
	{16, 2, true, 800, 100, false},
	{16, 4, false, 800, 1600, false},
	{24, 2, false, 800, 1200, true}, /* no power of two */
	{64, 4, true, 800, 800, false},
	{1000, 2, false, 8000, 10000, true},
	{1000, 2, true, 8000, 10000, false},
	{1000, 10, false, 8000, 10000, true},
};

/* As on tests/topo/islands_two_by_two.json. */
static void check_chosen(struct links *l)
{
	struct select_table t = {.params = {.latency_ps = 250000,
					    .per_message_ps = 40000,
					    .bytes_per_s = 9000000000,
					    .reduce_bytes_per_s = 12000000000,
					    .copy_bytes_per_s = 10000000000,
					    .slot_bytes = 131072,
					    .node_ranks = 1,
					    .node_cores = 8}};
	struct shape s = {.coll = COLL_REDUCE_SCATTER,
			  .ranks = (int)l->ranks,
			  .links = l};
	const struct algorithm *a;

	ck_assert_int_eq(select_algorithm(&t, &s, 1 << 26, &a), DICOMM_SUCCESS);
	ck_assert_str_eq(a->name, "islands");
}

START_TEST(islands_are_found)
{
	const struct layout *o = &layouts[_i];
	struct links *l = some_links(o->nodes);

	set_layout(o);
	ck_assert(renew(&l, false));
	are_found(l, o);
	if (o->nodes == 4 && o->scattered)
		check_chosen(l);
	/* And stay as they are. */
	ck_assert(!renew(&l, true));
	are_found(l, o);
	links_free(l);
}
END_TEST

/* Their way is as wide as all that they have. */
START_TEST(wide_islands_are_none)
{
	static const struct layout wide[] = {
		{4, 2, false, 800, 1600, false},
		{8, 2, true, 800, 3200, false},
		{100, 4, false, 800, 20000, false}};
	struct links *l = some_links(wide[_i].nodes);

	set_layout(&wide[_i]);
	ck_assert(renew(&l, false));
	is_found(l);
	links_free(l);
}
END_TEST

/* What looked slow in the rounds of all is looked at again. */
START_TEST(a_moment_of_noise_makes_no_islands)
{
	struct links *l = some_links(4), *made;
	struct rates r;
	uint32_t from;
	bool changed;

	set_nodes((unsigned[]){800, 800, 800, 800}, 4);
	ck_assert_int_eq(rates_open(&r, 4), DICOMM_SUCCESS);
	measure_stage(&r);
	for (uint32_t n = 0; n < 4; n++)
		for (uint32_t i = 0; i < rates_rounds(4); i++) {
			from = rates_partner(4, i, n);
			if (from / 2 != n / 2)
				r.flow[n * RATES_FLOWS + i] /= 3;
		}
	ck_assert_int_eq(rates_proceed(&r, l, false), DICOMM_SUCCESS);
	ck_assert_uint_eq(r.islands, 2);
	measure_stage(&r);
	ck_assert_int_eq(rates_proceed(&r, l, false), DICOMM_SUCCESS);
	ck_assert_int_eq(rates_links(&r, l, false, &made, &changed),
			 DICOMM_SUCCESS);
	is_found(made);
	rates_close(&r);
	links_free(made);
	links_free(l);
}
END_TEST

/* Between islands that are known, and where there were none. */
START_TEST(a_way_between_islands_changes)
{
	struct layout o = {4, 2, _i, 800, 400, false};
	struct links *l = some_links(4);

	set_layout(&o);
	renew(&l, false);
	for (unsigned way = 100; way < 1000; way *= 4) {
		o.way = way;
		set_layout(&o);
		ck_assert(renew(&l, true));
		are_found(l, &o);
		ck_assert(!renew(&l, true));
	}
	links_free(l);
	l = some_links(4);
	set_nodes((unsigned[]){800, 800, 800, 800}, 4);
	renew(&l, false);
	is_found(l);
	set_layout(&o);
	out_of[0] = out_of[1] = into[0] = into[1] = 100 * MBIT;
	o.way = 100;
	ck_assert(renew(&l, true));
	are_found(l, &o);
	links_free(l);
}
END_TEST

/* A file may say of hosts only that their ways are wider than what joins them,
 * one by one. */
START_TEST(a_way_between_wide_nodes_gets_narrow)
{
	struct links *l = links_create(2, 2, 1, 2);

	ck_assert_ptr_nonnull(l);
	set_layout(&(struct layout){2, 2, false, 8000, 100, false});
	for (uint32_t n = 0; n < 2; n++) {
		l->node_of[n] = l->island_of[n] = n;
		l->island[n] = (struct links_pipe){400 * MBIT, 400 * MBIT};
	}
	ck_assert_int_eq(links_finish(l, &l), DICOMM_SUCCESS);
	ck_assert(renew(&l, true));
	for (uint32_t n = 0; n < 2; n++) {
		ck_assert_uint_eq(links_node(l, n)->nic.up, 0);
		is_near(l->island[n].up, 100 * MBIT, n);
		is_near(l->island[n].down, 100 * MBIT, n);
	}
	ck_assert(!renew(&l, true));
	links_free(l);
}
END_TEST

/* The two of a file, say, that has a third one for who names none. */
START_TEST(islands_without_nodes_are_not_met)
{
	struct links *l = links_create(4, 4, 1, 3);
	struct rates r;

	ck_assert_ptr_nonnull(l);
	for (uint32_t n = 0; n < 4; n++) {
		l->node_of[n] = n;
		l->island_of[n] = 1 + n / 2;
	}
	ck_assert_int_eq(links_finish(l, &l), DICOMM_SUCCESS);
	ck_assert_int_eq(rates_open(&r, 4), DICOMM_SUCCESS);
	ck_assert_int_eq(rates_proceed(&r, l, true), DICOMM_SUCCESS);
	ck_assert_int_eq(r.stage, RATES_ISLANDS);
	ck_assert_uint_eq(rates_stage_rounds(&r), 1);
	rates_close(&r);
	links_free(l);
}
END_TEST

/* ---- changes ---- */

struct drop {
	unsigned before[4], after[4], found[4];
};

static const struct drop drops[] = {
	/* One of equals. */
	{{800, 800, 800, 800}, {800, 800, 800, 100}, {800, 800, 800, 100}},
	/* The other fast one can no longer show what it carries, but nothing
	 * speaks against it. */
	{{800, 800, 200, 100}, {800, 100, 200, 100}, {800, 100, 200, 100}},
	/* Either could be the one that has dropped, until each meets several.
	 */
	{{800, 800, 100, 100}, {800, 100, 100, 100}, {800, 100, 100, 100}},
	/* And back. */
	{{800, 800, 800, 100}, {800, 800, 800, 800}, {800, 800, 800, 800}},
	/* What is measured is never quite what the others have. */
	{{800, 800, 800, 100}, {800, 800, 800, 770}, {800, 800, 800, 800}},
	{{800, 200, 200, 100}, {800, 200, 200, 100}, {800, 200, 200, 100}},
};

START_TEST(only_what_has_changed_is_replaced)
{
	const struct drop *d = &drops[_i];
	struct links *l = links_create(4, 4, 4, 1);
	bool same = !memcmp(d->before, d->after, sizeof(d->before));

	ck_assert_ptr_nonnull(l);
	for (uint32_t n = 0; n < 4; n++) {
		l->class[n].nic = (struct links_pipe){d->before[n] * MBIT,
						      d->before[n] * MBIT};
		l->class_of[n] = l->node_of[n] = n;
	}
	ck_assert_int_eq(links_finish(l, &l), DICOMM_SUCCESS);
	set_nodes(d->after, 4);
	ck_assert_int_eq(renew(&l, true), !same);
	for (uint32_t n = 0; n < 4; n++) {
		is_near(l->class[n].nic.up, d->found[n] * MBIT, n);
		is_near(l->class[n].nic.down, d->found[n] * MBIT, n);
		if (d->before[n] == d->found[n])
			ck_assert_uint_eq(l->class[n].nic.up,
					  d->before[n] * MBIT);
		/* Whoever was replaced, and whoever was not. */
		for (uint32_t k = 0; k < n; k++)
			if (d->found[k] == d->found[n])
				ck_assert_uint_eq(l->class[k].nic.up,
						  l->class[n].nic.up);
	}
	links_free(l);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rates");
	TCase *tc = tcase_create("all");

	tcase_add_loop_test(tc, rounds_are_disjoint_pairs, 0, 16);
	tcase_add_loop_test(tc, unlike_rates_are_found, 0, 5);
	tcase_add_loop_test(tc, one_that_is_faster_than_all_is_found, 0,
			    sizeof(fasts) / sizeof(*fasts));
	tcase_add_test(tc, one_that_only_receives_fast_is_found);
	tcase_add_test(tc, short_flows_are_no_fast_hosts);
	tcase_add_test(tc, what_explains_all_is_not_looked_at_again);
	tcase_add_test(tc, the_path_begins_with_what_is_found_fast);
	tcase_add_test(tc, equal_links_are_equal);
	tcase_add_test(tc, a_thousand_nodes_take_ten_rounds);
	tcase_add_loop_test(tc, islands_are_found, 0,
			    sizeof(layouts) / sizeof(*layouts));
	tcase_add_loop_test(tc, wide_islands_are_none, 0, 3);
	tcase_add_test(tc, a_moment_of_noise_makes_no_islands);
	tcase_add_loop_test(tc, a_way_between_islands_changes, 0, 2);
	tcase_add_test(tc, a_way_between_wide_nodes_gets_narrow);
	tcase_add_test(tc, islands_without_nodes_are_not_met);
	tcase_add_loop_test(tc, only_what_has_changed_is_replaced, 0,
			    sizeof(drops) / sizeof(*drops));
	suite_add_tcase(suite, tc);
	return runner_main(suite);
}
