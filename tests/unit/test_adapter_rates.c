/* SPDX-License-Identifier: BSD-3-Clause */
/* From what adapters say that they carry to a table of links. */
#include <check.h>
#include <string.h>

#include "src/links/adapter_rates.h"
#include "tests/support/runner.h"

#define RANKS 5
#define GBIT UINT64_C(125000000)

static struct adapter_rates says[RANKS];
static struct links *made;
static bool summed;

/* Hosts of ranks 0 and 1, 2 and 3, and 4, each with an adapter 7. */
static void set_up(void)
{
	static const uint32_t node_of[RANKS] = {0, 0, 1, 1, 2};
	struct links *l = links_create(RANKS, 3, 1, 1);

	ck_assert_ptr_nonnull(l);
	memcpy(l->node_of, node_of, sizeof(node_of));
	l->class[0].nic = (struct links_pipe){10 * GBIT, 10 * GBIT};
	ck_assert_int_eq(links_finish(l, &l), DICOMM_SUCCESS);
	memset(says, 0, sizeof(says));
	for (int r = 0; r < RANKS; r++) {
		says[r].n = 1;
		says[r].adapter[0] = (struct tp_adapter){
			.id = 7, .bytes_per_s = 100 * GBIT, .latency_ps = 2};
	}
	made = l;
}

static void tear_down(void)
{
	links_free(made);
}

static void declare(void)
{
	struct links *old = made;

	ck_assert_int_eq(adapter_rates_links(old, says, &made, &summed),
			 DICOMM_SUCCESS);
	links_free(old);
}

static void way_is(uint32_t node, uint64_t gbit)
{
	ck_assert_uint_eq(links_node(made, node)->nic.up, gbit * GBIT);
	ck_assert_uint_eq(links_node(made, node)->nic.down, gbit * GBIT);
}

START_TEST(an_adapter_of_two_ranks_counts_once)
{
	declare();
	for (uint32_t n = 0; n < 3; n++)
		way_is(n, 100);
	ck_assert(!summed);
}
END_TEST

START_TEST(adapters_of_a_rank_add_up)
{
	says[4].n = 2;
	says[4].adapter[1] = (struct tp_adapter){
		.id = 8, .bytes_per_s = 50 * GBIT, .latency_ps = 5};
	declare();
	way_is(2, 150);
	ck_assert_uint_eq(links_node(made, 2)->latency_ps, 5);
	ck_assert_uint_eq(links_node(made, 0)->latency_ps, 2);
	ck_assert(!summed);
	/* It is the fastest. */
	ck_assert_uint_eq(made->path[0], 4);
}
END_TEST

/* Who would measure it has a part only. */
START_TEST(adapters_of_ranks_add_up)
{
	says[3].adapter[0].id = 8;
	declare();
	way_is(0, 100);
	way_is(1, 200);
	ck_assert_uint_eq(links_node(made, 0)->rank, 0);
	ck_assert_uint_eq(links_node(made, 1)->rank, 100 * GBIT);
	ck_assert(summed);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("declared");
	TCase *tc = tcase_create("all");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, an_adapter_of_two_ranks_counts_once);
	tcase_add_test(tc, adapters_of_a_rank_add_up);
	tcase_add_test(tc, adapters_of_ranks_add_up);
	suite_add_tcase(suite, tc);
	return runner_main(suite);
}
