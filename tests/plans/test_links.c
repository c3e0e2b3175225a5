/* SPDX-License-Identifier: BSD-3-Clause */
/* What plans send over links: trees and rings cross them once, and what has far
 * to go goes first. */
#include <check.h>

#include "tests/plans/world.h"
#include "tests/support/runner.h"

#define RANKS_MOST 17
#define SEEDS 40

/* Messages of all ranks, by how far they go. */
struct crossings {
	struct shape s;
	uint32_t sent[3], nearest;
};

static void count(void *ctx, enum step_kind kind, int peer, uint32_t nblocks,
		  uint32_t taken, uint32_t parts)
{
	struct crossings *c = ctx;

	(void)nblocks;
	(void)taken;
	(void)parts;
	if (kind == STEP_SEND)
		c->sent[shape_distance(&c->s, peer)]++;
}

static struct crossings crossings_of(enum coll coll, const char *name, int root,
				     const struct links *l)
{
	struct crossings c = {.s = {.coll = coll,
				    .ranks = (int)l->ranks,
				    .root = root,
				    .links = l}};

	for (; c.s.rank < c.s.ranks; c.s.rank++)
		ck_assert_int_eq(algorithm_tell(algorithm_find(coll, name),
						&c.s, count, &c),
				 DICOMM_SUCCESS);
	return c;
}

static void crosses_once(const struct crossings *c, uint32_t ways)
{
	const struct links *l = c->s.links;
	uint32_t far = l->islands - 1;

	ck_assert_msg(c->sent[2] == ways * far, "%s: %u of %u islands",
		      coll_name(c->s.coll), c->sent[2], l->islands);
	ck_assert_msg(c->sent[1] == ways * (l->nodes - 1 - far),
		      "%s: %u of %u nodes", coll_name(c->s.coll), c->sent[1],
		      l->nodes);
	ck_assert_uint_eq(c->sent[0], ways * (l->ranks - l->nodes));
}

/* As it is estimated. */
static uint32_t far_hops(const struct crossings *c, const char *name)
{
	struct work w = {.hops = 0};

	algorithm_find(c->s.coll, name)->work(&c->s, 1 << 20, &w);
	return w.hops - w.near_hops;
}

/* Of two to so many ranks, spread at random. */
static void for_all_links(int ranks, void (*check)(const struct links *l))
{
	for (unsigned seed = 0; seed < SEEDS; seed++) {
		struct links *l = world_links(ranks, seed);

		check(l);
		links_free(l);
	}
}

static void check_trees(const struct links *l)
{
	struct crossings c;

	for (int root = 0; root < (int)l->ranks; root++) {
		c = crossings_of(COLL_BROADCAST, "binomial", root, l);
		crosses_once(&c, 1);
		c = crossings_of(COLL_REDUCE, "binomial", root, l);
		crosses_once(&c, 1);
		c = crossings_of(COLL_BROADCAST, "chain", root, l);
		crosses_once(&c, 1);
		ck_assert_uint_eq(far_hops(&c, "chain"), l->nodes - 1);
	}
	c = crossings_of(COLL_BARRIER, "tree", -1, l);
	crosses_once(&c, 2);
	/* Of two trees, up and down; islands are not told apart. */
	c = crossings_of(COLL_ALLREDUCE, "tree", -1, l);
	ck_assert_uint_eq(c.sent[1] + c.sent[2], 4 * (l->nodes - 1));
}

START_TEST(trees_cross_each_link_once)
{
	for_all_links(_i, check_trees);
}
END_TEST

/* ---- rings ---- */

struct next {
	int peer; /* -1: none yet */
};

static void has_one_peer(void *ctx, enum step_kind kind, int peer,
			 uint32_t nblocks, uint32_t taken, uint32_t parts)
{
	struct next *n = ctx;

	(void)nblocks;
	(void)taken;
	(void)parts;
	if (kind != STEP_SEND)
		return;
	ck_assert(n->peer < 0 || n->peer == peer);
	n->peer = peer;
}

/* Each node, and each island, is left once; from a rank to the one before it
 * all of them, or all but one. */
static void check_ring(const struct links *l, enum coll coll, uint32_t times)
{
	uint32_t nodes = l->nodes < l->ranks ? l->nodes : l->ranks - 1;
	struct crossings c;
	struct shape s = {
		.coll = coll, .ranks = (int)l->ranks, .root = -1, .links = l};
	uint32_t left[3] = {0, 0, 0};

	for (; s.rank < s.ranks; s.rank++) {
		struct next n = {.peer = -1};

		ck_assert_int_eq(algorithm_tell(algorithm_find(coll, "ring"),
						&s, has_one_peer, &n),
				 DICOMM_SUCCESS);
		left[shape_distance(&s, n.peer)]++;
	}
	ck_assert_uint_eq(left[2], l->islands > 1 ? l->islands : 0);
	ck_assert_uint_eq(left[1] + left[2], l->nodes > 1 ? l->nodes : 0);
	c.s = s;
	ck_assert_uint_eq(far_hops(&c, "ring"), times * nodes);
}

static void check_rings(const struct links *l)
{
	check_ring(l, COLL_ALLREDUCE, 2);
	check_ring(l, COLL_REDUCE_SCATTER, 1);
	check_ring(l, COLL_ALLGATHER, 1);
}

START_TEST(rings_cross_each_link_once)
{
	for_all_links(_i, check_rings);
}
END_TEST

/* ---- all-to-all ---- */

static void goes_no_farther(void *ctx, enum step_kind kind, int peer,
			    uint32_t nblocks, uint32_t taken, uint32_t parts)
{
	struct crossings *c = ctx;
	uint32_t distance;

	(void)nblocks;
	(void)taken;
	(void)parts;
	if (kind != STEP_SEND)
		return;
	distance = (uint32_t)shape_distance(&c->s, peer);
	ck_assert_uint_le(distance, c->nearest);
	c->nearest = distance;
}

static void check_order(const struct links *l)
{
	static const char *const names[] = {"direct", "pairwise"};
	struct crossings c;

	for (int i = 0; i < 2; i++)
		for (int r = 0; r < (int)l->ranks; r++) {
			c = (struct crossings){.s = {.coll = COLL_ALLTOALLV,
						     .rank = r,
						     .ranks = (int)l->ranks,
						     .root = -1,
						     .links = l},
					       .nearest = 2};
			ck_assert_int_eq(
				algorithm_tell(algorithm_find(COLL_ALLTOALLV,
							      names[i]),
					       &c.s, goes_no_farther, &c),
				DICOMM_SUCCESS);
		}
}

START_TEST(what_has_far_to_go_goes_first)
{
	for_all_links(_i, check_order);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("links");
	TCase *tc = tcase_create("all");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, trees_cross_each_link_once, 2, RANKS_MOST + 1);
	tcase_add_loop_test(tc, rings_cross_each_link_once, 2, RANKS_MOST + 1);
	tcase_add_loop_test(tc, what_has_far_to_go_goes_first, 2,
			    RANKS_MOST + 1);
	suite_add_tcase(suite, tc);
	return runner_main(suite);
}
