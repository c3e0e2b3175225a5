/* SPDX-License-Identifier: BSD-3-Clause */
/* Spans, dependencies, and what a plan costs at 1,024 ranks. */
#include "collectives/plan/algorithm.h"
#include "tests/plans/world.h"
#include "tests/support/runner.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

START_TEST(parts_cover_a_slice_without_overlap)
{
	const size_t lens[] = {0, 1, 7, 8, 63, 64, 65, 1000, 4097};
	const size_t aligns[] = {1, 8, 64};

	for (size_t l = 0; l < 9; l++) {
		for (size_t a = 0; a < 3; a++) {
			for (uint32_t parts = 1; parts <= 17; parts++) {
				size_t at = 0, first, n, all;

				for (uint32_t i = 0; i < parts; i++) {
					plan_split(lens[l], i, i + 1, parts,
						   aligns[a], &first, &n);
					ck_assert(n == 0 || first == at);
					ck_assert(first == lens[l] ||
						  first % aligns[a] == 0);
					at += n;
				}
				ck_assert_uint_eq(at, lens[l]);
				plan_split(lens[l], 0, parts, parts, aligns[a],
					   &first, &all);
				ck_assert_uint_eq(first, 0);
				ck_assert_uint_eq(all, lens[l]);
			}
		}
	}
}
END_TEST

START_TEST(empty_spans_and_copies_onto_themselves_add_nothing)
{
	struct span recv = plan_block(PLAN_RECV, 3);
	struct plan p;

	plan_init(&p, 4);
	plan_set_in_place(&p, true, 3);
	plan_copy(&p, recv, plan_block(PLAN_SEND, 0));
	plan_send(&p, 1, plan_cut(plan_block(PLAN_RECV, 0), 2, 2, 4));
	ck_assert_uint_eq(p.nsteps, 0);
	plan_send(&p, 1, plan_block(PLAN_SEND, 0));
	ck_assert_uint_eq(p.steps[0].a.buffer, PLAN_RECV);
	ck_assert_uint_eq(p.steps[0].a.block, 3);
	ck_assert_int_eq(plan_finish(&p), DICOMM_SUCCESS);
	plan_free(&p);
}
END_TEST

/* Read after write, write after read, write after write; none between parts
 * that are apart, and none that another one implies. */
START_TEST(dependencies_are_the_nearest_conflicts)
{
	struct span whole = plan_block(PLAN_RECV, 0);
	struct span left = plan_cut(plan_block(PLAN_RECV, 0), 0, 1, 2);
	struct span right = plan_cut(plan_block(PLAN_RECV, 0), 1, 2, 2);
	struct plan p;

	plan_init(&p, 3);
	plan_recv(&p, 1, left);  /* 0 */
	plan_recv(&p, 1, right); /* 1 */
	plan_send(&p, 2, left);  /* 2: after 0 */
	plan_recv(&p, 2, left);  /* 3: after 2, hence after 0 */
	plan_send(&p, 1, whole); /* 4: after 3 and 1 */
	plan_recv(&p, 1, right); /* 5: after 4, hence after 1 */
	ck_assert_int_eq(plan_finish(&p), DICOMM_SUCCESS);

	ck_assert_uint_eq(p.steps[0].dep_count, 0);
	ck_assert_uint_eq(p.steps[1].dep_count, 0);
	ck_assert_uint_eq(p.steps[2].dep_count, 1);
	ck_assert_uint_eq(p.deps[p.steps[2].dep_first], 0);
	ck_assert_uint_eq(p.steps[3].dep_count, 1);
	ck_assert_uint_eq(p.deps[p.steps[3].dep_first], 2);
	ck_assert_uint_eq(p.steps[4].dep_count, 2);
	ck_assert_uint_eq(p.steps[5].dep_count, 1);
	ck_assert_uint_eq(p.deps[p.steps[5].dep_first], 4);

	ck_assert_uint_eq(p.steps[5].pair_index, 2);
	ck_assert_uint_eq(p.sends_to[1], 1);
	ck_assert_uint_eq(p.sends_to[2], 1);
	ck_assert_uint_eq(p.recvs_from[1], 3);
	ck_assert_uint_eq(p.recvs_from[2], 1);
	ck_assert_uint_eq(p.message_parts, 1);
	ck_assert_uint_eq(p.message_parts_of, 1);
	plan_free(&p);
}
END_TEST

/* The elements of a step's span, as bits of a small imaginary memory. */
static void fill(struct span s, uint32_t nfold, unsigned char *memory)
{
	const size_t len = 60;
	uint32_t blocks = nfold ? nfold : s.nblocks;
	size_t first, n;

	for (uint32_t b = s.block; b < s.block + blocks; b++) {
		plan_split(len, s.lo, s.hi, s.parts, 1, &first, &n);
		memset(memory + (s.buffer * 64 + b) * len + first, 1, n);
	}
}

enum { MEMORY = 3 * 64 * 60 };

static bool conflict(const struct step *a, const struct step *b)
{
	static unsigned char written[MEMORY], touched[MEMORY];

	if (a->kind == STEP_SEND)
		return false;
	memset(written, 0, MEMORY);
	memset(touched, 0, MEMORY);
	fill(a->dst, 0, written);
	if (b->kind != STEP_SEND)
		fill(b->dst, 0, touched);
	if (b->kind != STEP_RECV)
		fill(b->a, 0, touched);
	if (b->kind == STEP_REDUCE || b->kind == STEP_FOLD)
		fill(b->b, b->nfold, touched);
	for (int i = 0; i < MEMORY; i++)
		if (written[i] && touched[i])
			return true;
	return false;
}

/* reach[i][j]: step i waits for step j. */
static void check_dependencies(const struct algorithm *a, const struct plan *p)
{
	uint32_t n = p->nsteps;
	bool *reach = calloc((size_t)n * n + 1, sizeof(*reach));

	for (uint32_t i = 0; i < n; i++) {
		const struct step *s = &p->steps[i];

		for (uint32_t d = 0; d < s->dep_count; d++) {
			uint32_t j = p->deps[s->dep_first + d];

			ck_assert_uint_lt(j, i);
			reach[i * n + j] = true;
			for (uint32_t k = 0; k < j; k++)
				reach[i * n + k] |= reach[j * n + k];
		}
		for (uint32_t j = 0; j < i; j++)
			if (conflict(s, &p->steps[j]) ||
			    conflict(&p->steps[j], s))
				ck_assert_msg(reach[i * n + j],
					      "%s %s: step %u does not wait "
					      "for %u",
					      coll_name(a->coll), a->name, i,
					      j);
	}
	free(reach);
}

static void each_plan(const struct algorithm *a, int ranks,
		      const struct links *links)
{
	for (int variant = 0; variant < 4; variant++) {
		for (int r = 0; r < ranks; r++) {
			struct shape s = {.coll = a->coll,
					  .rank = r,
					  .ranks = ranks,
					  .root = ranks / 2,
					  .in_place = variant & 1,
					  .prescale = variant & 2 &&
						      coll_reduces(a->coll),
					  .links = links};
			struct plan p;

			if (!coll_rooted(a->coll))
				s.root = 0;
			if (!a->serves(&s) ||
			    (s.in_place && a->coll == COLL_ALLTOALLV))
				continue;
			ck_assert_int_eq(algorithm_plan(a, &s, &p),
					 DICOMM_SUCCESS);
			check_dependencies(a, &p);
			plan_free(&p);
		}
	}
}

static bool needs_links(const struct algorithm *a)
{
	struct shape s = {.coll = a->coll, .ranks = 4};

	return !a->serves(&s);
}

START_TEST(every_conflict_is_waited_for)
{
	const int ranks[] = {2, 3, 4, 7, 8};

	for (int i = 0; i < 5; i++) {
		each_plan(algorithms[_i], ranks[i], NULL);
		for (unsigned seed = 0; seed < 3 && needs_links(algorithms[_i]);
		     seed++) {
			struct links *l = world_links(ranks[i], seed);

			each_plan(algorithms[_i], ranks[i], l);
			links_free(l);
		}
	}
}
END_TEST

/* A rank is inside one tree at most: up and down in one, up in the other. */
START_TEST(double_tree_shares_the_work)
{
	for (int n = 3; n <= 70; n++) {
		for (int r = 0; r < n; r++) {
			struct shape s = {
				.coll = COLL_ALLREDUCE, .rank = r, .ranks = n};
			uint32_t sends = 0;
			struct plan p;

			ck_assert_int_eq(
				algorithm_plan(
					algorithm_find(COLL_ALLREDUCE, "tree"),
					&s, &p),
				DICOMM_SUCCESS);
			for (int i = 0; i < n; i++)
				sends += p.sends_to[i];
			ck_assert_msg(sends <= 4, "%d of %d: %u", r, n, sends);
			plan_free(&p);
		}
	}
}
END_TEST

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Sanitizers make everything slower. */
#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PATIENCE 20
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PATIENCE 20
#endif
#ifndef PATIENCE
#define PATIENCE 1
#endif

/* The engine slices a message of any size; nothing here knows how long it is,
 * so that this is what a plan takes for 1 GiB, too. */
START_TEST(plans_of_1024_ranks_are_small_and_quick)
{
	const struct algorithm *a = algorithms[_i];

	for (int in_place = 0; in_place < 2; in_place++) {
		struct shape s = {.coll = a->coll,
				  .rank = 512,
				  .ranks = 1024,
				  .in_place = in_place,
				  .prescale = coll_reduces(a->coll)};
		double best = 1e9, begin;
		struct plan p;

		if (!a->serves(&s) || (in_place && a->coll == COLL_ALLTOALLV))
			continue;
		for (int k = 0; k < 3; k++) {
			begin = now_ms();
			ck_assert_int_eq(algorithm_plan(a, &s, &p),
					 DICOMM_SUCCESS);
			if (now_ms() - begin < best)
				best = now_ms() - begin;
			if (k < 2)
				plan_free(&p);
		}
		printf("# 1024 ranks, %s %s%s: %u steps, %u deps, %u scratch "
		       "blocks, %zu bytes, %.2f ms\n",
		       coll_name(a->coll), a->name, in_place ? " in place" : "",
		       p.nsteps, p.ndeps, p.scratch_blocks, plan_bytes(&p),
		       best);
		ck_assert_uint_le(plan_bytes(&p), 2 << 20);
		ck_assert_uint_le(p.ndeps, 3 * p.nsteps);
		ck_assert_msg(best < 50 * PATIENCE, "%s %s: %.1f ms",
			      coll_name(a->coll), a->name, best);
		plan_free(&p);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("plan");
	TCase *tc = tcase_create("all");
	int n = 0;

	while (algorithms[n])
		n++;
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, parts_cover_a_slice_without_overlap);
	tcase_add_test(tc, empty_spans_and_copies_onto_themselves_add_nothing);
	tcase_add_test(tc, dependencies_are_the_nearest_conflicts);
	tcase_add_test(tc, double_tree_shares_the_work);
	tcase_add_loop_test(tc, every_conflict_is_waited_for, 0, n);
	tcase_add_loop_test(tc, plans_of_1024_ranks_are_small_and_quick, 0, n);
	suite_add_tcase(suite, tc);
	return runner_main(suite);
}
