/* SPDX-License-Identifier: BSD-3-Clause */
/* From measured flows to tables of links: what is found, what stays. */
#include <check.h>
#include <string.h>

#include "src/topo/rates.h"
#include "tests/support/runner.h"

#define MOST_NODES 1000
#define MBIT UINT64_C(125000)

static uint64_t up_of[MOST_NODES], down_of[MOST_NODES];
static uint32_t flow[MOST_NODES * RATES_ROUNDS];

static void set_nodes(const unsigned *mbit, uint32_t nodes)
{
	for (uint32_t n = 0; n < nodes; n++)
		up_of[n] = down_of[n] = mbit[n] * MBIT;
}

/* One rank on each node; all alike, until measured. */
static struct links *some_links(uint32_t nodes)
{
	struct links *l = links_create(nodes, nodes, 1, 1);

	ck_assert_ptr_nonnull(l);
	l->class[0].nic = (struct links_pipe){10000 * MBIT, 10000 * MBIT};
	for (uint32_t n = 0; n < nodes; n++)
		l->node_of[n] = n;
	ck_assert_int_eq(links_finish(l), DICOMM_SUCCESS);
	return l;
}

/* What up_of and down_of let through, and some noise: up to 6 % less. */
static void measure(uint32_t nodes)
{
	for (uint32_t n = 0; n < nodes; n++)
		for (uint32_t r = 0; r < RATES_ROUNDS; r++) {
			uint32_t *x = &flow[n * RATES_ROUNDS + r], from;

			*x = RATES_UNKNOWN;
			if (r >= rates_rounds(nodes))
				continue;
			from = rates_partner(nodes, r, n);
			if (from == RATES_UNKNOWN)
				continue;
			*x = (uint32_t)(links_slower(up_of[from], down_of[n]) /
					1000);
			*x -= *x / 100 * ((n * 7 + r * 3) % 7);
		}
}

static bool renew(struct links **l, bool known)
{
	struct links *made;
	bool changed;

	measure((*l)->nodes);
	ck_assert_int_eq(rates_links(*l, known, flow, &made, &changed),
			 DICOMM_SUCCESS);
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

START_TEST(a_thousand_nodes_take_seven_rounds)
{
	struct links *l = some_links(MOST_NODES);

	for (uint32_t n = 0; n < MOST_NODES; n++)
		up_of[n] = down_of[n] = (n % 10 ? 8000 : 1000) * MBIT;
	ck_assert_uint_eq(rates_rounds(MOST_NODES), 7);
	renew(&l, false);
	is_found(l);
	links_free(l);
}
END_TEST

struct drop {
	unsigned before[4], after[4], found[4];
};

static const struct drop drops[] = {
	/* One of equals. */
	{{800, 800, 800, 800}, {800, 800, 800, 100}, {800, 800, 800, 100}},
	/* The other fast one can no longer show what it carries, but nothing
	 * speaks against it. */
	{{800, 800, 200, 100}, {800, 100, 200, 100}, {800, 100, 200, 100}},
	/* Either could be the one that has dropped. */
	{{800, 800, 100, 100}, {800, 100, 100, 100}, {100, 100, 100, 100}},
	/* And back. */
	{{800, 800, 800, 100}, {800, 800, 800, 800}, {800, 800, 800, 800}},
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
	ck_assert_int_eq(links_finish(l), DICOMM_SUCCESS);
	set_nodes(d->after, 4);
	ck_assert_int_eq(renew(&l, true), !same);
	for (uint32_t n = 0; n < 4; n++) {
		is_near(l->class[n].nic.up, d->found[n] * MBIT, n);
		is_near(l->class[n].nic.down, d->found[n] * MBIT, n);
		if (d->before[n] == d->found[n])
			ck_assert_uint_eq(l->class[n].nic.up,
					  d->before[n] * MBIT);
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
	tcase_add_test(tc, equal_links_are_equal);
	tcase_add_test(tc, a_thousand_nodes_take_seven_rounds);
	tcase_add_loop_test(tc, only_what_has_changed_is_replaced, 0,
			    sizeof(drops) / sizeof(*drops));
	suite_add_tcase(suite, tc);
	return runner_main(suite);
}
