/* SPDX-License-Identifier: BSD-3-Clause */
/* Every algorithm of the registry does what its collective says. */
#include "tests/plans/world.h"
#include "tests/support/runner.h"

#include <check.h>
#include <string.h>

static unsigned dice(unsigned *seed, unsigned n)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (*seed >> 10) % n;
}

static bool serves(const struct world *w)
{
	struct shape s = world_shape(w, 0);

	return w->ranks == 1 || w->algorithm->serves(&s);
}

/* Of those that need links, and of half of the others, ranks are spread. */
static struct links *spread(struct world *w, unsigned *seed)
{
	struct shape s = {.coll = w->algorithm->coll, .ranks = w->ranks};
	struct links *l = NULL;

	w->links = NULL;
	if (w->ranks > 1 && (!w->algorithm->serves(&s) || dice(seed, 2)))
		w->links = l = world_links(w->ranks, dice(seed, 1u << 20));
	return l;
}

static void roll(struct world *w, const struct algorithm *a, int ranks,
		 size_t count, unsigned *seed)
{
	static const unsigned references[] = {0, 50, 100};
	static const size_t slices[] = {1, 3, 8, 40, 1 << 20};
	enum coll c = a->coll;

	memset(w, 0, sizeof(*w));
	w->algorithm = a;
	w->ranks = ranks;
	w->root = coll_rooted(c) ? (int)dice(seed, (unsigned)ranks) : -1;
	w->count = count;
	switch (c == COLL_ALLTOALLV ? 0 : dice(seed, 3)) {
	case 1:
		w->in_place = UINT32_MAX;
		break;
	case 2:
		w->in_place = dice(seed, 1u << 17);
		break;
	}
	if (coll_reduces(c)) {
		w->prescale = dice(seed, 3) == 0;
		w->postdivide = !w->prescale && dice(seed, 2) == 0;
	}
	w->sim.slice = slices[dice(seed, 5)];
	/* A dozen slices show all there is to see. */
	if (w->sim.slice < count / 12)
		w->sim.slice = count / 12;
	w->sim.align = dice(seed, 2) ? 8 : 1;
	w->sim.window = 1 + dice(seed, 4);
	w->sim.credits = dice(seed, 2) ? 1 : 1 + dice(seed, 5);
	w->sim.references = references[dice(seed, 3)];
	w->sim.seed = *seed;
}

static void report(struct world *w, const char *mode)
{
	ck_abort_msg("%s %s %s: %d ranks, root %d, count %zu, in place %x, "
		     "%s%sslice %zu, align %zu, window %u, credits %u, "
		     "references %u%%, %u nodes, %u islands: %s",
		     coll_name(w->algorithm->coll), w->algorithm->name, mode,
		     w->ranks, w->root, w->count, w->in_place,
		     w->prescale ? "prescale, " : "",
		     w->postdivide ? "postdivide, " : "", w->sim.slice,
		     w->sim.align, (unsigned)w->sim.window, w->sim.credits,
		     w->sim.references, w->links ? w->links->nodes : 1,
		     w->links ? w->links->islands : 1, w->sim.why);
}

static void run(struct world *w)
{
	world_create(w);
	if (!world_run(w))
		report(w, "");
	world_destroy(w);

	/* The path of small messages. */
	w->sim.slice = w->count + 1;
	w->sim.credits = 1 + w->sim.seed % 2;
	world_create(w);
	if (!world_run_in_order(w))
		report(w, "in order");
	world_destroy(w);
}

START_TEST(result_is_that_of_the_definition)
{
	const struct algorithm *a = algorithms[_i];
	unsigned seed = 1 + (unsigned)_i;
	struct links *links;
	struct world w;

	for (int n = 1; n <= WORLD_MAX_RANKS; n++) {
		const size_t counts[] = {
			0,  1,   (size_t)n - 1, (size_t)n, (size_t)n + 1,
			17, 200, 1000};

		for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
			for (int k = 0; k < (n < 9 ? 4 : 2); k++) {
				roll(&w, a, n, counts[c], &seed);
				links = spread(&w, &seed);
				if (serves(&w))
					run(&w);
				links_free(links);
			}
		}
	}
}
END_TEST

/* Each root once, in place and not. */
START_TEST(any_rank_can_be_root)
{
	const struct algorithm *a = algorithms[_i];
	unsigned seed = 77;
	struct links *links;
	struct world w;

	if (!coll_rooted(a->coll))
		return;
	for (int n = 2; n <= 9; n++) {
		for (int root = 0; root < n; root++) {
			for (int k = 0; k < 2; k++) {
				roll(&w, a, n, 50, &seed);
				w.root = root;
				w.in_place = k ? UINT32_MAX : 0;
				links = spread(&w, &seed);
				if (serves(&w))
					run(&w);
				links_free(links);
			}
		}
	}
}
END_TEST

/* All ranks get the same bits, though sums of floats depend on their order. */
START_TEST(allreduce_is_the_same_on_all_ranks)
{
	const struct algorithm *a = algorithms[_i];
	unsigned seed = 99;
	struct links *links;
	struct world w;

	if (a->coll != COLL_ALLREDUCE)
		return;
	for (int n = 2; n <= WORLD_MAX_RANKS; n++) {
		roll(&w, a, n, 100, &seed);
		w.prescale = w.postdivide = false;
		w.doubles = true;
		links = spread(&w, &seed);
		if (!serves(&w)) {
			links_free(links);
			continue;
		}
		world_create(&w);
		if (!world_run(&w))
			report(&w, "of doubles");
		for (int r = 1; r < n; r++)
			for (size_t i = 0; i < 100; i++)
				ck_assert_msg(world_result(&w, r, i) ==
						      world_result(&w, 0, i),
					      "%s: ranks 0 and %d of %d differ",
					      a->name, r, n);
		world_destroy(&w);
		links_free(links);
	}
}
END_TEST

START_TEST(deterministic_ones_fold_in_rank_order)
{
	const struct algorithm *a = algorithms[_i];
	unsigned seed = 5;
	struct world w;

	if (!a->deterministic)
		return;
	ck_assert(coll_reduces(a->coll));
	for (int n = 1; n <= WORLD_MAX_RANKS; n++) {
		roll(&w, a, n, 100, &seed);
		w.prescale = w.postdivide = false;
		w.doubles = true;
		if (!serves(&w))
			continue;
		world_create(&w);
		if (!world_run(&w))
			report(&w, "of doubles");
		for (int r = 0; r < n; r++) {
			bool scatter = a->coll != COLL_ALLREDUCE &&
				       a->coll != COLL_REDUCE;
			const struct sim_buffer *b =
				&w.rank[r].buffer[PLAN_RECV];

			for (size_t i = 0; b->blocks > 0 && i < b->len[0]; i++)
				ck_assert_msg(
					world_result(&w, r, i) ==
						world_folded(
							&w, scatter ? r : 0, i),
					"%s: rank %d of %d: another order",
					a->name, r, n);
		}
		world_destroy(&w);
	}
}
END_TEST

/* A slice is as long as the largest message allows. Where a message is never
 * sliced, each rank may have its own. */
START_TEST(slices_are_as_long_on_all_ranks)
{
	const struct algorithm *a = algorithms[_i];
	struct plan p;

	for (int k = 0; k < 3 * 16 && !a->whole; k++) {
		int n = 2 + k % 16;
		struct links *links =
			k < 16 ? NULL : world_links(n, 5u * (unsigned)k);
		struct shape s = {.coll = a->coll, .ranks = n, .links = links};
		uint32_t parts = 0, of = 0;

		if (!a->serves(&s)) {
			links_free(links);
			continue;
		}
		for (s.rank = 0; s.rank < n; s.rank++) {
			ck_assert_int_eq(algorithm_plan(a, &s, &p),
					 DICOMM_SUCCESS);
			if (s.rank == 0) {
				parts = p.message_parts;
				of = p.message_parts_of;
			}
			ck_assert_msg(p.message_parts * of ==
					      parts * p.message_parts_of,
				      "%s %s: %d ranks: rank 0 sends %u of %u "
				      "parts, rank %d %u of %u",
				      coll_name(a->coll), a->name, n, parts, of,
				      s.rank, p.message_parts,
				      p.message_parts_of);
			plan_free(&p);
		}
		links_free(links);
	}
}
END_TEST

/* Each on a node of its own, of which the first is the only fast one. */
static struct links *one_fast(int ranks)
{
	uint32_t n = (uint32_t)ranks;
	struct links *l = links_create(n, n, 2, 1);

	ck_assert_ptr_nonnull(l);
	l->class[0].nic = (struct links_pipe){1000000, 1000000};
	l->class[1].nic = (struct links_pipe){1000, 1000};
	for (uint32_t r = 0; r < n; r++) {
		l->node_of[r] = r;
		l->class_of[r] = r > 0;
	}
	ck_assert_int_eq(links_finish(l, &l), DICOMM_SUCCESS);
	return l;
}

/* A part is a cache line at least, and slots may be as small as 4 KiB. */
START_TEST(messages_fit_the_smallest_slot)
{
	static const int ranks[] = {2, 3, 17, 64, 255, 600};
	const struct algorithm *a = algorithms[_i];
	struct plan p;

	for (size_t k = 0; k < sizeof(ranks) / sizeof(*ranks) && !a->whole;
	     k++) {
		struct links *links = one_fast(ranks[k]);
		struct shape s = {
			.coll = a->coll, .ranks = ranks[k], .links = links};

		for (; s.rank < s.ranks && a->serves(&s); s.rank += 299) {
			ck_assert_int_eq(algorithm_plan(a, &s, &p),
					 DICOMM_SUCCESS);
			ck_assert_msg(p.message_parts <= 4096 / 64,
				      "%s %s: rank %d of %d: %u of %u parts",
				      coll_name(a->coll), a->name, s.rank,
				      s.ranks, p.message_parts,
				      p.message_parts_of);
			plan_free(&p);
		}
		links_free(links);
	}
}
END_TEST

/* Slices of such may be as long as they like. */
START_TEST(scratchless_ones_have_no_scratch)
{
	const struct algorithm *a = algorithms[_i];
	struct plan p;

	for (int n = 2; n <= 9 && a->scratchless; n++)
		for (int k = 0; k < 6 * n * n; k++) {
			struct shape s = {
				.coll = a->coll,
				.ranks = n,
				.rank = k / 6 / n,
				.root = coll_rooted(a->coll) ? k / 6 % n : -1,
				.in_place = k % 2,
				.prescale = k / 2 % 3 == 1,
				.postdivide = k / 2 % 3 == 2};

			if (!a->serves(&s))
				continue;
			ck_assert_int_eq(algorithm_plan(a, &s, &p),
					 DICOMM_SUCCESS);
			ck_assert_msg(!p.scratch_blocks,
				      "%s %s: rank %d of %d has %u blocks",
				      coll_name(a->coll), a->name, s.rank, n,
				      p.scratch_blocks);
			plan_free(&p);
		}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("algorithms");
	TCase *tc = tcase_create("all");
	int n = 0;

	while (algorithms[n])
		n++;
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, result_is_that_of_the_definition, 0, n);
	tcase_add_loop_test(tc, any_rank_can_be_root, 0, n);
	tcase_add_loop_test(tc, slices_are_as_long_on_all_ranks, 0, n);
	tcase_add_loop_test(tc, messages_fit_the_smallest_slot, 0, n);
	tcase_add_loop_test(tc, scratchless_ones_have_no_scratch, 0, n);
	tcase_add_loop_test(tc, allreduce_is_the_same_on_all_ranks, 0, n);
	tcase_add_loop_test(tc, deterministic_ones_fold_in_rank_order, 0, n);
	suite_add_tcase(suite, tc);
	return runner_main(suite);
}
