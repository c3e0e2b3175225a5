/* SPDX-License-Identifier: BSD-3-Clause */
/* The schedule ZB-H1, beside the formula of its paper (arXiv 2401.10241) and
 * another simulation. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "planner/cost/check.h"
#include "planner/search/search.h"
#include "tests/planner/desk.h"
#include "tests/support/runner.h"

enum { STAGES = 6, BATCHES = 20 };

static double run(struct schedule_stage *st, int n, int m,
		  enum plan_schedule schedule)
{
	struct schedule_pipeline l = {
		.stage = st, .stages = n, .micro_batches = m};

	return schedule_run(&l, 1, 1, schedule, PLAN_OVERLAP_P2P, NULL, NULL);
}

/* (n - 1) (F + B - W), as long as gradients of weights take no longer than a
 * pass forward. */
START_TEST(the_bubble_is_that_of_the_paper)
{
	static const double weight[] = {0.1, 0.4, 0.7, 1};

	for (int n = 1; n <= STAGES; n++) {
		for (int m = n; m <= BATCHES; m++) {
			for (int k = 0; k < 4; k++) {
				double w = weight[k], b = 1.2;
				struct schedule_stage st[STAGES];
				double end;

				for (int s = 0; s < n; s++)
					st[s] = (struct schedule_stage){
						.forward = 1,
						.backward = b + w,
						.weight = w};
				end = run(st, n, m, PLAN_ZB_H1);
				ck_assert_double_eq_tol(end - m * (1 + b + w),
							(n - 1) * (1 + b - w),
							1e-9);
				ck_assert_double_le(
					end, run(st, n, m, PLAN_1F1B) + 1e-9);
			}
		}
	}
}
END_TEST

/* ---- another simulation: when each pass is over, from those before it ---- */

static double later(double a, double b)
{
	return a > b ? a : b;
}

static double end_of(const struct schedule_stage *st, int n, int m)
{
	double there[STAGES][BATCHES] = {0}, back[STAGES][BATCHES] = {0};
	double last = 0;

	/* So often until all is told that each pass waits for. */
	for (int round = 0; round < 2 * (n + m); round++) {
		last = 0;
		for (int s = 0; s < n; s++) {
			int done = 0, held = n - s < m ? n - s : m;
			double now = 0;

			for (int k = 0; k < m + held; k++) {
				if (k >= held) {
					double *x = &back[s][k - held];
					double from =
						s < n - 1 ? back[s + 1]
								[k - held] +
								    st[s].back
							  : there[s][k - held];

					now = later(now, from) +
					      st[s].backward - st[s].weight;
					*x = now;
				}
				if (k >= held && k - held >= s && ++done)
					now += st[s].weight;
				if (k >= m)
					continue;
				now = later(now,
					    s ? there[s - 1][k] + st[s - 1].send
					      : 0) +
				      st[s].forward;
				there[s][k] = now;
			}
			last = later(last, now + (m - done) * st[s].weight);
		}
	}
	return last;
}

START_TEST(times_are_those_of_another_simulation)
{
	unsigned seed = 1;

	for (int k = 0; k < 200; k++) {
		int n = 1 + k % STAGES, m = 1 + k * 7 % BATCHES;
		struct schedule_stage st[STAGES] = {0};

		for (int s = 0; s < n; s++) {
			double x[5];

			for (int i = 0; i < 5; i++) {
				seed = seed * 1664525u + 1013904223u;
				x[i] = (seed >> 8) / (double)(1 << 24);
			}
			st[s] = (struct schedule_stage){.forward = 0.5 + x[0],
							.backward = 1 + x[1],
							.weight = x[2],
							.send = k % 2 * x[3],
							.back = k % 2 * x[4]};
		}
		ck_assert_double_eq_tol(run(st, n, m, PLAN_ZB_H1),
					end_of(st, n, m), 1e-9);
	}
}
END_TEST

/* ---- plans ---- */

static const char cluster[] =
	"{\"nodes\": [{\"count\": 4, \"ranks\": 1, \"gbit_per_s\": 100,"
	" \"inside_gbit_per_s\": 2400, \"device\": \"x\"}],"
	" \"devices\": {\"x\": {\"tflops\": 100, \"memory_gib\": 60}}}";
static const char model[] =
	"{\"num_hidden_layers\": 32, \"hidden_size\": 4096,"
	" \"num_attention_heads\": 32, \"intermediate_size\": 11008,"
	" \"vocab_size\": 32000}";

static void plan_four(struct plan *p)
{
	struct plan_pipeline *l;

	*p = (struct plan){
		.seq = 2048, .global_batch = 16, .overlap = PLAN_OVERLAP_P2P};
	l = plan_add_pipeline(p);
	l->micro_batch = 1;
	l->micro_batches = 16;
	for (int s = 0; s < 4; s++)
		desk_stage(l, (uint32_t)s, 1, s ? 8 * s + 1 : 0,
			   s == 3 ? 33 : 8 * s + 8);
}

static void note(const char *text, void *ctx)
{
	snprintf(ctx, 512, "%s", text);
}

/* Micro-batches whose backward pass is over in stage s, but for gradients of
 * weights, at most: B(j) is followed by W(j - s). */
static int most_put_off(int s, int m)
{
	int now = 0, most = 0;

	for (int j = 0; j < m; j++) {
		if (++now > most)
			most = now;
		now -= j >= s;
	}
	return most;
}

START_TEST(gradients_of_weights_are_put_off_where_memory_is)
{
	struct cost plain, late, all;
	char said[512] = "";
	struct plan p;
	struct job j;

	desk_job(&j, cluster, model, 2048, 16);
	plan_four(&p);
	ck_assert(cost_of(&j, &p, NULL, NULL, &plain));
	p.schedule = PLAN_ZB_H1;
	ck_assert_msg(!check_plan(&j, &p, note, said), "%s", said);
	ck_assert(cost_of(&j, &p, NULL, NULL, &late));
	ck_assert_double_lt(late.step, 0.95 * plain.step);
	for (int s = 0; s < 4; s++) {
		const struct cost_stage *a = &plain.pipeline[0].stage[s];
		const struct cost_stage *b = &late.pipeline[0].stage[s];

		ck_assert_double_eq_tol(a->busy, b->busy, 1e-9);
		ck_assert_int_eq(a->memory.in_flight, 4 - s);
		ck_assert_int_eq(b->memory.in_flight, 4);
		/* Scores of attention have none. */
		ck_assert_double_gt(b->weight, 0.4 * b->backward);
		ck_assert_double_lt(b->weight, 0.5 * b->backward);
	}
	cost_free(&plain);
	/* Computed again, and kept until then. */
	for (int s = 0; s < 4; s++)
		p.pipeline[0].stage[s].recompute = true;
	ck_assert(cost_of(&j, &p, NULL, NULL, &plain));
	p.schedule = PLAN_GPIPE;
	ck_assert(cost_of(&j, &p, NULL, NULL, &all));
	p.schedule = PLAN_ZB_H1;
	for (int s = 0; s < 4; s++) {
		double active =
			late.pipeline[0].stage[s].memory.activations / 4;
		double kept = all.pipeline[0].stage[s].memory.activations / 16;

		ck_assert_double_eq_tol(
			plain.pipeline[0].stage[s].memory.activations,
			4 * kept + most_put_off(s, 16) * (active - kept), 1);
	}
	cost_free(&plain);
	cost_free(&late);
	cost_free(&all);
	p.overlap = PLAN_BLOCKING;
	ck_assert_int_eq(check_plan(&j, &p, note, said), 1);
	ck_assert_ptr_nonnull(strstr(said, "overlap: none: wanted send, p2p or "
					   "full with the schedule zb-h1"));
	p.overlap = PLAN_EAGER;
	p.pipeline[0].interleave = 2;
	ck_assert_int_gt(check_plan(&j, &p, note, said), 0);
	plan_close(&p);
	job_close(&j);
}
END_TEST

START_TEST(a_search_finds_such_plans)
{
	struct job j;
	struct search s = {.job = &j,
			   .space = SEARCH_AUTO,
			   .overlap = PLAN_OVERLAP_P2P,
			   .rounds = 4,
			   .seed = 1,
			   .jobs = 1};
	struct search_found f;
	char said[512] = "";
	double plain;

	desk_job(&j, cluster, model, 2048, 16);
	ck_assert(search_run(&s, &f));
	plain = f.cost.step;
	search_free(&f);
	s.schedule = PLAN_ZB_H1;
	ck_assert(search_run(&s, &f));
	ck_assert_msg(!check_plan(&j, &f.plan, note, said), "%s", said);
	ck_assert_double_lt(f.cost.step, plain);
	search_free(&f);
	job_close(&j);
}
END_TEST

/* What a stage computes again has to fit, too. */
START_TEST(a_search_finds_them_where_memory_is_scarce)
{
	static const char scarce[] =
		"{\"nodes\": [{\"count\": 4, \"ranks\": 1, \"gbit_per_s\": 100,"
		" \"device\": \"x\"}],"
		" \"devices\": {\"x\": {\"tflops\": 100, \"memory_gib\": 34}}}";
	struct job j;
	struct search s = {.job = &j,
			   .space = SEARCH_AUTO,
			   .schedule = PLAN_ZB_H1,
			   .overlap = PLAN_OVERLAP_P2P,
			   .rounds = 4,
			   .seed = 1,
			   .jobs = 1};
	struct search_found f;

	desk_job(&j, scarce, model, 2048, 16);
	ck_assert(search_run(&s, &f));
	search_free(&f);
	job_close(&j);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("planner: zero bubble");
	TCase *t = tcase_create("zero bubble");

	tcase_add_test(t, the_bubble_is_that_of_the_paper);
	tcase_add_test(t, times_are_those_of_another_simulation);
	tcase_add_test(t, gradients_of_weights_are_put_off_where_memory_is);
	tcase_add_test(t, a_search_finds_such_plans);
	tcase_add_test(t, a_search_finds_them_where_memory_is_scarce);
	tcase_set_timeout(t, 60);
	suite_add_tcase(s, t);
	return runner_main(s);
}
