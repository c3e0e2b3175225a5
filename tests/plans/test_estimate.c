/* SPDX-License-Identifier: BSD-3-Clause */
/* The estimate against the simulated time, and its arithmetic at the edges. */
#include "collectives/plan/schedule.h"
#include "collectives/select/select.h"
#include "tests/plans/world.h"
#include "tests/support/runner.h"

#include <check.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* How far the two may be apart. The simulation knows what waits for what; the
 * estimate does not, and must only rank algorithms well. */
#define FACTOR 2.1
/* How much slower than the best the selected one may be. */
#define NEAR 1.3

static const struct estimate_params machine = {
	.latency_ps = 300000,
	.per_message_ps = 50000,
	.bytes_per_s = 10000000000,
	.reduce_bytes_per_s = 15000000000,
	.copy_bytes_per_s = 12000000000,
	.slot_bytes = 4096,
	.node_ranks = 16,
	.node_cores = 16,
};

/* Its slots hold more than the engine makes of most of the messages here. */
static const struct estimate_params wide = {
	.latency_ps = 300000,
	.per_message_ps = 50000,
	.bytes_per_s = 10000000000,
	.reduce_bytes_per_s = 15000000000,
	.copy_bytes_per_s = 12000000000,
	.slot_bytes = 131072,
	.node_ranks = 16,
	.node_cores = 16,
};

static const int rank_counts[] = {2, 3, 4, 8, 16};
static const size_t sizes[] = {64, 4096, 65536, 524288};

/* Slices as the engine makes them. */
static size_t slice_elements(const struct estimate_params *e,
			     const struct world *w)
{
	const struct plan *p = &w->rank[0].plan;
	uint64_t message = w->count * sizeof(uint64_t) * p->message_parts /
			   p->message_parts_of;
	uint64_t slice = schedule_slice_bytes(message, e->slot_bytes, false);

	return slice / sizeof(uint64_t) * p->message_parts_of /
	       p->message_parts;
}

static size_t block_elements(enum coll c, size_t bytes, int ranks)
{
	size_t n = bytes / sizeof(uint64_t);

	return c == COLL_ALLREDUCE || c == COLL_REDUCE || c == COLL_BROADCAST
		       ? n
		       : n / (size_t)ranks;
}

static uint64_t simulated_ps(const struct estimate_params *e,
			     const struct algorithm *a, int ranks, size_t bytes)
{
	struct world w;
	uint64_t ps;

	memset(&w, 0, sizeof(w));
	w.algorithm = a;
	w.ranks = ranks;
	w.count = block_elements(a->coll, bytes, ranks);
	w.sim.align = 8;
	w.sim.window = 16;
	w.sim.credits = 16;
	world_create(&w);
	w.sim.slice = slice_elements(e, &w);
	if (!world_run_timed(&w, e, &ps))
		ck_abort_msg("%s %s: %d ranks, %zu bytes: %s",
			     coll_name(a->coll), a->name, ranks, bytes,
			     w.sim.why);
	world_destroy(&w);
	return ps;
}

static bool comparable(const struct estimate_params *e,
		       const struct algorithm *a, int ranks, size_t bytes)
{
	struct shape s = {.coll = a->coll, .ranks = ranks};

	if (coll_has_counts(a->coll) || !a->serves(&s) ||
	    block_elements(a->coll, bytes, ranks) == 0)
		return false;
	return !a->whole ||
	       estimate_message_bytes(a, &s, bytes) <= e->slot_bytes;
}

static void check_near(const struct estimate_params *e,
		       const struct algorithm *a, int ranks, size_t bytes)
{
	struct shape s = {.coll = a->coll, .ranks = ranks};
	uint64_t est, sim;

	if (!comparable(e, a, ranks, bytes))
		return;
	est = estimate_ps(e, a, &s, bytes);
	sim = simulated_ps(e, a, ranks, bytes);
	ck_assert_msg((double)est <= FACTOR * (double)sim &&
			      (double)sim <= FACTOR * (double)est,
		      "%s %s on %d ranks, %zu bytes, slots of %u: estimated "
		      "%.1f us, simulated %.1f us",
		      coll_name(a->coll), a->name, ranks, bytes, e->slot_bytes,
		      (double)est / 1e6, (double)sim / 1e6);
}

/* For all numbers of ranks, and sizes from there on. */
static void check_all_near(const struct estimate_params *e,
			   const struct algorithm *a, size_t first)
{
	for (size_t r = 0; r < 5; r++)
		for (size_t b = first; b < 4; b++)
			check_near(e, a, rank_counts[r], sizes[b]);
}

START_TEST(estimate_is_near_the_simulated_time)
{
	check_all_near(&machine, algorithms[_i], 0);
}
END_TEST

START_TEST(messages_are_cut_before_they_fill_a_slot)
{
	check_all_near(&wide, algorithms[_i], 2);
}
END_TEST

/* The one that is selected is not much slower than the best there is. */
static void check_selected(const struct estimate_params *e, enum coll c,
			   int ranks, size_t bytes)
{
	struct select_table t = {.params = *e};
	struct shape s = {.coll = c, .ranks = ranks};
	const struct algorithm *chosen, *best = NULL;
	uint64_t best_ps = UINT64_MAX, ps;

	ck_assert_int_eq(select_algorithm(&t, &s, bytes, &chosen),
			 DICOMM_SUCCESS);
	for (int i = 0; algorithms[i]; i++) {
		if (algorithms[i]->coll != c ||
		    !comparable(e, algorithms[i], ranks, bytes))
			continue;
		ps = simulated_ps(e, algorithms[i], ranks, bytes);
		if (ps < best_ps) {
			best_ps = ps;
			best = algorithms[i];
		}
	}
	if (!best)
		return;
	ps = simulated_ps(e, chosen, ranks, bytes);
	ck_assert_msg((double)ps <= NEAR * (double)best_ps,
		      "%s on %d ranks, %zu bytes, slots of %u: %s takes %.1f "
		      "us, %s %.1f us",
		      coll_name(c), ranks, bytes, e->slot_bytes, chosen->name,
		      (double)ps / 1e6, best->name, (double)best_ps / 1e6);
}

START_TEST(selection_is_near_the_best)
{
	for (size_t r = 0; r < 5; r++)
		for (size_t b = 0; b < 4; b++) {
			check_selected(&machine, (enum coll)_i, rank_counts[r],
				       sizes[b]);
			check_selected(&wide, (enum coll)_i, rank_counts[r],
				       sizes[b]);
		}
}
END_TEST

/* The larger one takes no less, up to what no machine has. */
static void check_sizes(const struct estimate_params *e,
			const struct algorithm *a, int ranks)
{
	struct shape s = {.coll = a->coll, .ranks = ranks};
	uint64_t last = 0, ps;

	if (ranks > 1 && !a->serves(&s))
		return;
	for (int shift = 0; shift <= 64; shift += 4) {
		ps = estimate_ps(e, a, &s,
				 shift < 64 ? UINT64_C(1) << shift
					    : UINT64_MAX);
		ck_assert_msg(ps >= last, "%s %s: %d ranks, 2^%d bytes",
			      coll_name(a->coll), a->name, ranks, shift);
		last = ps;
	}
}

START_TEST(huge_sizes_and_absent_rates_saturate)
{
	struct estimate_params none = {0}, crowded = machine;

	crowded.node_ranks = 4096;
	crowded.node_cores = 2;
	for (int i = 0; algorithms[i]; i++) {
		for (int n = 1; n <= 4096; n *= 8) {
			check_sizes(&machine, algorithms[i], n);
			check_sizes(&crowded, algorithms[i], n);
			check_sizes(&none, algorithms[i], n);
		}
	}
}
END_TEST

START_TEST(more_ranks_than_cores_cost_more)
{
	struct estimate_params crowded = machine;

	crowded.node_cores = 2;
	for (int i = 0; algorithms[i]; i++) {
		struct shape s = {.coll = algorithms[i]->coll, .ranks = 16};

		ck_assert_uint_gt(
			estimate_ps(&crowded, algorithms[i], &s, 65536),
			estimate_ps(&machine, algorithms[i], &s, 65536));
	}
}
END_TEST

static uint64_t predicted(const struct algorithm *a, struct links *l,
			  bool prescale, bool postdivide)
{
	struct select_table t = {.params = machine};
	struct shape s = {.coll = a->coll,
			  .ranks = (int)l->ranks,
			  .prescale = prescale,
			  .postdivide = postdivide,
			  .links = l};
	uint64_t ps;

	ck_assert_int_eq(select_predict(&t, &s, 1 << 20, a, &ps),
			 DICOMM_SUCCESS);
	return ps;
}

/* Two nodes of two ranks each, with more between them than ranks can use. */
static struct links *two_nodes(void)
{
	struct links *l = links_create(4, 2, 1, 1);

	ck_assert_ptr_nonnull(l);
	for (uint32_t r = 0; r < 4; r++)
		l->node_of[r] = r / 2;
	ck_assert_int_eq(links_finish(l, &l), DICOMM_SUCCESS);
	return l;
}

/* Ranks must agree, and have not all made the same calls before. */
START_TEST(earlier_calls_change_no_estimate)
{
	for (int i = 0; algorithms[i]; i++) {
		const struct algorithm *a = algorithms[i];

		if (!coll_reduces(a->coll))
			continue;
		for (int first = 1; first < 4; first++) {
			struct links *fresh = two_nodes(), *used = two_nodes();

			predicted(a, used, first & 1, first & 2);
			ck_assert_msg(predicted(a, used, false, false) ==
					      predicted(a, fresh, false, false),
				      "%s %s after prescale %d, postdivide %d",
				      coll_name(a->coll), a->name, first & 1,
				      first >> 1);
			links_free(fresh);
			links_free(used);
		}
	}
}
END_TEST

/* ---- forks ---- */

#define FORKS 300

static _Atomic bool over;

static void ask(const struct links *l)
{
	struct shape s = {.coll = algorithms[0]->coll, .ranks = 4, .links = l};

	estimate_ps(&machine, algorithms[0], &s, 1 << 20);
}

/* What was asked before is remembered, under a lock. */
static void *ask_on(void *links)
{
	while (!over)
		ask(links);
	return NULL;
}

static void child(void)
{
	struct links *l = two_nodes();

	alarm(20);
	ask(l);
	links_free(l);
	_exit(0);
}

/* Whatever another thread of the parent is at. */
START_TEST(a_child_finds_times_of_its_own_links)
{
	struct links *l = two_nodes();
	pthread_t thread;
	int status;

	ck_assert_int_eq(pthread_create(&thread, NULL, ask_on, l), 0);
	for (int i = 0; i < FORKS; i++) {
		pid_t pid = fork();

		if (!pid)
			child();
		ck_assert_int_gt(pid, 0);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status),
			      "child %d: status %#x", i, (unsigned)status);
	}
	over = true;
	pthread_join(thread, NULL);
	links_free(l);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("estimate");
	TCase *tc = tcase_create("all");
	int n = 0;

	while (algorithms[n])
		n++;
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, estimate_is_near_the_simulated_time, 0, n);
	tcase_add_loop_test(tc, messages_are_cut_before_they_fill_a_slot, 0, n);
	tcase_add_loop_test(tc, selection_is_near_the_best, 0, COLL_ALLTOALLV);
	tcase_add_test(tc, huge_sizes_and_absent_rates_saturate);
	tcase_add_test(tc, more_ranks_than_cores_cost_more);
	tcase_add_test(tc, earlier_calls_change_no_estimate);
	tcase_add_test(tc, a_child_finds_times_of_its_own_links);
	suite_add_tcase(suite, tc);
	return runner_main(suite);
}
